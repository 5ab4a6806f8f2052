"""Drift alarms, and noting that somebody looked at one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from dashboards.access import Role, Session
from dashboards.desk import Desk, Number, see_other
from dashboards.errors import ConsoleError


def pages(desk: Desk) -> APIRouter:
    """Return the routes of drift alarms."""
    router = APIRouter(prefix="/drift")

    @router.get("")
    def listed(request: Request) -> Response:
        return _listed(desk, request, desk.visitor(request))

    @router.post("/{number}/acknowledge")
    def acknowledged(
        request: Request,
        number: Number,
        csrf: Annotated[str, Form()] = "",
        reason: Annotated[str, Form()] = "",
    ) -> Response:
        session = desk.form_visitor(request, Role.OPERATOR, csrf)
        try:
            desk.console.acknowledge(number, session.actor, reason)
        except ConsoleError as refusal:
            return _listed(desk, request, session, refusal)
        return see_other("/drift")

    return router


def _listed(
    desk: Desk, request: Request, session: Session, refusal: ConsoleError | None = None
) -> Response:
    return desk.page(
        request,
        session,
        "drift.html",
        status=refusal.status if refusal else HTTPStatus.OK,
        alarms=desk.console.alarms(),
        problem=str(refusal) if refusal else "",
    )
