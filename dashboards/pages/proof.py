"""Shadow replays, divergence reports, pinned configurations: proof of faster and the same."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dashboards.desk import Desk, Number


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

    return router
