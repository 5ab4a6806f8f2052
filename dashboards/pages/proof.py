"""Shadow replays, divergence reports, pinned configurations: proof of faster and the same."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from dashboards.access import Role
from dashboards.desk import Desk, Number, see_other


def pages(desk: Desk) -> APIRouter:
    """Return the routes of replays, reports and configurations."""
    router = APIRouter()

    @router.get("/proof")
    def listed(request: Request) -> Response:
        session = desk.visitor(request)
        return desk.page(
            request,
            session,
            "proof.html",
            replays=desk.console.replays(),
            divergences=desk.console.divergences(),
        )

    @router.get("/replays/{number}")
    def replay(request: Request, number: Number) -> Response:
        session = desk.visitor(request)
        return desk.page(request, session, "replay.html", view=desk.console.replay(number))

    @router.get("/pinned/{digest}")
    def pinned(request: Request, digest: str) -> Response:
        session = desk.visitor(request)
        config = desk.console.pinned(digest)
        return desk.page(request, session, "pinned.html", config=config, digest=digest)

    @router.get("/divergences/{number}")
    def divergence(request: Request, number: Number) -> Response:
        session = desk.visitor(request)
        view = desk.console.divergence(number)
        return desk.page(request, session, "divergence.html", view=view)

    @router.post("/proof/gate/{number}")
    def gate_run(request: Request, number: Number, csrf: Annotated[str, Form()] = "") -> Response:
        session = desk.form_visitor(request, Role.OPERATOR, csrf)
        desk.console.run_gate(number, session.actor)
        return see_other(f"/recommendations/{number}#gate")

    return router
