"""The list of recommendations, one recommendation, and the operator's decision on it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from dashboards.access import Role
from dashboards.charts import curve_chart
from dashboards.console import Act
from dashboards.desk import Desk, Number, see_other
from dashboards.errors import ConsoleError, InvalidAction


def pages(desk: Desk) -> APIRouter:
    """Return the routes of recommendations."""
    router = APIRouter(prefix="/recommendations")

    @router.get("")
    def listed(request: Request, state: str = "") -> Response:
        session = desk.visitor(request)
        return desk.page(
            request,
            session,
            "recommendations.html",
            lines=desk.console.recommendations(state or None),
            states=desk.console.states(),
            chosen=state,
        )

    @router.get("/{number}")
    def shown(request: Request, number: Number) -> Response:
        return _shown(desk, request, number)

    @router.post("/{number}/approve-together")
    def approved(
        request: Request,
        number: Number,
        numbers: Annotated[list[int], Form()],
        csrf: Annotated[str, Form()] = "",
        reason: Annotated[str, Form()] = "",
    ) -> Response:
        session = desk.form_visitor(request, Role.OPERATOR, csrf)
        try:
            desk.console.approve_together(numbers, session.actor, reason)
        except ConsoleError as refusal:
            return _shown(desk, request, number, refusal, reason)
        return see_other(f"/recommendations/{number}")

    @router.post("/{number}/{act}")
    def decided(
        request: Request,
        number: Number,
        act: str,
        csrf: Annotated[str, Form()] = "",
        reason: Annotated[str, Form()] = "",
        revision: Annotated[int | None, Form()] = None,
    ) -> Response:
        session = desk.form_visitor(request, Role.OPERATOR, csrf)
        try:
            desk.console.decide(number, act_named(act), session.actor, reason, revision)
        except ConsoleError as refusal:
            return _shown(desk, request, number, refusal, reason, revision)
        return see_other(f"/recommendations/{number}")

    return router


def act_named(name: str) -> Act:
    """Return the action with this name.

    Raises:
        InvalidAction: there is none.
    """
    if name not in list(Act):
        raise InvalidAction(f"no action is called {name!r}; use one of: {', '.join(Act)}")
    return Act(name)


def _shown(
    desk: Desk,
    request: Request,
    number: int,
    refusal: ConsoleError | None = None,
    reason: str = "",
    seen: int | None = None,
) -> Response:
    session = desk.visitor(request)
    view = desk.console.recommendation(number, seen)
    return desk.page(
        request,
        session,
        "recommendation.html",
        status=refusal.status if refusal else HTTPStatus.OK,
        view=view,
        acts=[Act(name) for name in view.actions],
        curves=curve_chart(view.said.curves),
        problem=str(refusal) if refusal else "",
        reason=reason,
    )
