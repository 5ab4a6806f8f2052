"""Signing in by link or by form, and signing out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from dashboards.access import Role
from dashboards.desk import Desk, see_other
from dashboards.errors import ConsoleError, SignInNeeded, TooManyAttempts


def pages(desk: Desk) -> APIRouter:
    """Return the routes of signing in and out."""
    router = APIRouter()

    @router.get("/sign-in")
    def follow_link(request: Request, token: str = "", to: str = "/") -> Response:
        if token:
            return _signed_in(desk, request, token, to)
        return desk.page(request, None, "sign_in.html", to=safe_path(to), problem="")

    @router.post("/sign-in")
    def send_form(
        request: Request, token: Annotated[str, Form()] = "", to: Annotated[str, Form()] = "/"
    ) -> Response:
        return _signed_in(desk, request, token, to)

    @router.post("/sign-out")
    def sign_out(request: Request, csrf: Annotated[str, Form()] = "") -> Response:
        desk.form_visitor(request, Role.VIEWER, csrf)
        response = see_other("/sign-in")
        desk.doorkeeper.sign_out(request, response)
        return response

    return router


def safe_path(target: str) -> str:
    """Return a path of this site, and ``/`` for anything that could lead elsewhere."""
    is_ours = target.startswith("/") and not target.startswith(("//", "/\\", "/sign-"))
    return target if is_ours and target.isprintable() and "\\" not in target else "/"


def _signed_in(desk: Desk, request: Request, token: str, to: str) -> Response:
    """Answer with a page that leads on by itself.

    A redirect would lose a SameSite=Strict cookie when the link was followed from another site.
    """
    target = safe_path(to)
    response = desk.page(request, None, "signed_in.html", to=target)
    try:
        desk.doorkeeper.sign_in(request, token.strip(), response)
    except (SignInNeeded, TooManyAttempts) as refusal:
        return _refused(desk, request, refusal, target)
    return response


def _refused(desk: Desk, request: Request, refusal: ConsoleError, target: str) -> Response:
    status = HTTPStatus(refusal.status)
    return desk.page(request, None, "sign_in.html", status=status, to=target, problem=str(refusal))
