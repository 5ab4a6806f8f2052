"""Access tokens: listed, made and revoked by admins."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from dashboards.access import Role, Session
from dashboards.desk import Desk, Number, see_other
from dashboards.errors import ConsoleError, InvalidAction


def pages(desk: Desk) -> APIRouter:
    """Return the routes of access tokens."""
    router = APIRouter(prefix="/tokens")

    @router.get("")
    def listed(request: Request) -> Response:
        return _listed(desk, request, desk.visitor(request, Role.ADMIN))

    @router.post("")
    def created(
        request: Request,
        csrf: Annotated[str, Form()] = "",
        name: Annotated[str, Form()] = "",
        role: Annotated[str, Form()] = "",
    ) -> Response:
        session = desk.form_visitor(request, Role.ADMIN, csrf)
        try:
            token = desk.console.create_token(name.strip(), role_named(role), session.actor)
        except ConsoleError as refusal:
            return _listed(desk, request, session, refusal=refusal)
        return _listed(desk, request, session, token=token)

    @router.post("/{number}/revoke")
    def revoked(request: Request, number: Number, csrf: Annotated[str, Form()] = "") -> Response:
        session = desk.form_visitor(request, Role.ADMIN, csrf)
        desk.console.revoke_token(number, session.actor)
        return see_other("/tokens")

    return router


def role_named(name: str) -> Role:
    """Return the role with this name.

    Raises:
        InvalidAction: there is none.
    """
    if name not in list(Role):
        raise InvalidAction(f"no role is called {name!r}; use one of: {', '.join(Role)}")
    return Role(name)


def _listed(
    desk: Desk,
    request: Request,
    session: Session,
    *,
    token: str = "",
    refusal: ConsoleError | None = None,
) -> Response:
    return desk.page(
        request,
        session,
        "tokens.html",
        status=refusal.status if refusal else HTTPStatus.OK,
        lines=desk.console.tokens(),
        roles=list(Role),
        made=token,
        problem=str(refusal) if refusal else "",
    )
