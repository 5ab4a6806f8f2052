"""The console as part of an application: pages, static files, and errors as pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from dashboards.access import Doorkeeper
from dashboards.console import Console
from dashboards.desk import PACKAGE_DIR, Desk
from dashboards.errors import ConsoleError
from dashboards.pages import ROUTERS
from dashboards.pages.access import safe_path


def add_console(
    app: FastAPI, console: Console, doorkeeper: Doorkeeper, now: Callable[[], datetime]
) -> Desk:
    """Add pages and static files to an application.

    Args:
        app: gets the routes; its error handlers are left alone (see :func:`error_page`).
        console: what the pages read and act on.
        doorkeeper: what tells who is signed in.
        now: tells the time, aware UTC.
    """
    desk = Desk(console, doorkeeper, now)
    app.mount("/static", StaticFiles(directory=PACKAGE_DIR / "static"), name="static")
    for pages in ROUTERS:
        app.include_router(pages(desk), include_in_schema=False)
    return desk


def error_page(desk: Desk, request: Request, error: ConsoleError) -> Response:
    """Answer with a page that says what is wrong; visitors who must sign in get the form."""
    status = HTTPStatus(error.status)
    if status is HTTPStatus.UNAUTHORIZED:
        to = safe_path(request.url.path) if request.method == "GET" else "/"
        problem = "" if to == "/" else str(error)
        return desk.page(request, None, "sign_in.html", status=status, to=to, problem=problem)
    session = desk.doorkeeper.session_of(request)
    return desk.page(request, session, "error.html", status=status, error=error, code=status)
