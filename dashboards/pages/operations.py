"""The timetable with its runs, and the audit trail."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dashboards.desk import Desk


def pages(desk: Desk) -> APIRouter:
    """Return the routes of jobs and audit."""
    router = APIRouter()

    @router.get("/jobs")
    def jobs(request: Request, job: str = "") -> Response:
        session = desk.visitor(request)
        view = desk.console.jobs(job or None)
        return desk.page(request, session, "jobs.html", view=view, chosen=job)

    @router.get("/audit")
    def audit(request: Request) -> Response:
        session = desk.visitor(request)
        return desk.page(request, session, "audit.html", lines=desk.console.audit())

    return router
