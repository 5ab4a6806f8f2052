"""The HTTP side of the service: console, JSON API, metrics and health behind the guards."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboards.access import Role
from dashboards.app import add_console
from dashboards.console import PERIODS_S, Console
from tuner.api.auth import TokenDoorkeeper
from tuner.api.failures import add_failures
from tuner.api.guards import BodyGuard, HeaderGuard, HostGuard
from tuner.api.routes import api_router
from tuner.metrics import CONTENT_TYPE, ServiceMetrics
from tuner.settings import Settings

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the HTTP side is made of.

    Attributes:
        settings: for the hosts that are answered.
        console: what pages and API read and act on.
        doorkeeper: checks tokens and sessions.
        metrics: counts requests and renders the scrape.
        problem: says why the service is not healthy, one line; None where it is.
        now: tells the time, aware UTC.
    """

    settings: Settings
    console: Console
    doorkeeper: TokenDoorkeeper
    metrics: ServiceMetrics
    problem: Callable[[], str | None]
    now: Callable[[], datetime]


def create_app(parts: Parts, lifespan: Lifespan | None = None) -> FastAPI:
    """Return the application. ``/docs`` is left out: it would load scripts from elsewhere."""
    app = FastAPI(
        title="Spectuner",
        version=_version(),
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        lifespan=lifespan,
        middleware=[
            Middleware(RequestCounter, metrics=parts.metrics),
            Middleware(HeaderGuard),
            Middleware(HostGuard, allowed_hosts=_hosts(parts.settings)),
            Middleware(BodyGuard),
        ],
    )
    desk = add_console(app, parts.console, parts.doorkeeper, parts.now)
    app.include_router(api_router(parts.console, parts.doorkeeper))
    _add_probes(app, parts)
    add_failures(app, desk)
    return app


class RequestCounter:
    """Counts requests and the time they took."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and count its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun_s, statuses = time.perf_counter(), [500]

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            self._metrics.note_request(statuses[-1], time.perf_counter() - begun_s)


def _add_probes(app: FastAPI, parts: Parts) -> None:
    @app.get("/health", tags=["probes"])
    def health() -> Response:
        """Answer 200 ``{"status": "ok"}``, or 503 with the reason; no token needed."""
        problem = parts.problem()
        if problem is None:
            return JSONResponse({"status": "ok", "version": _version()})
        return JSONResponse({"status": "unhealthy", "problem": problem}, status_code=503)

    @app.get("/metrics", tags=["probes"])
    def metrics(request: Request) -> Response:
        """Answer Prometheus text; needs the role viewer."""
        parts.doorkeeper.bearer(request, Role.VIEWER)
        overview = parts.console.overview(min(PERIODS_S))
        text = parts.metrics.exposition(overview, parts.console.jobs())
        return Response(text, media_type=CONTENT_TYPE)


def _hosts(settings: Settings) -> tuple[str, ...]:
    bound = () if settings.host in ("0.0.0.0", "::") else (settings.host,)
    return (*settings.allowed_hosts, *bound)


def _version() -> str:
    try:
        return metadata.version("spectuner")
    except metadata.PackageNotFoundError:
        return "unknown"
