"""The service as one application: store, jobs, console and API, started and stopped together."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime

import uvicorn
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from dashboards.views import JobLine
from tuner.api.auth import TokenDoorkeeper
from tuner.api.console import StoreConsole
from tuner.api.gates import SiteGatekeeper
from tuner.api.http import Parts, create_app
from tuner.api.live_plan import LivePlanReader
from tuner.api.reviewing import SiteReviewer
from tuner.api.secret import session_secret
from tuner.api.traffic import TrafficReader
from tuner.errors import BadRequest, TunerError
from tuner.jobs.scheduler import JobScheduler, job_scheduler
from tuner.metrics import ServiceMetrics
from tuner.settings import Settings
from tuner.store import Store, migrating, open_store
from tuner.workflows.site import Site, open_site

STOP_TIMEOUT_S = 10


def create_service(settings: Settings) -> FastAPI:
    """Put the service together; nothing is read or started until the application starts.

    The start fails where the database is not at the newest revision. The end lets running jobs
    come to their next safe point, then closes engine connections and store.

    Raises:
        BadRequest: the database URL or the session secret cannot be used.
    """
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    resources = ExitStack()
    store = open_store(settings.database_url)
    resources.callback(store.close)
    site = resources.enter_context(open_site(settings, store))
    scheduler = job_scheduler(site)
    parts = _parts(site, scheduler)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        with resources:
            await run_in_threadpool(migrating.require_head, store)
            await run_in_threadpool(scheduler.start)
            try:
                yield
            finally:
                await run_in_threadpool(scheduler.stop)

    return create_app(parts, lifespan)


def run_service(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        BadRequest: something else listens there, or a setting cannot be used.
        SchemaOutdated: the database is not at the newest revision.
    """
    listener = bound_socket(settings.host, settings.port)
    try:
        require_current_database(settings)
        # The access log would write sign-in links, tokens included.
        config = uvicorn.Config(
            create_service(settings),
            access_log=False,
            log_level="warning",
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
            server_header=False,
            proxy_headers=False,
        )
        _serve(uvicorn.Server(config), listener)
    finally:
        listener.close()


def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until a signal, and return; uvicorn sends itself the signal again afterwards.

    A signal that comes before uvicorn listens for it ends the server as well.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, server.handle_exit) for number in signals}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not server.started:
        raise TunerError("the service could not start; the lines above say why")


def require_current_database(settings: Settings) -> None:
    """Make sure, before anything starts, that the database can be read and is up to date.

    Raises:
        SchemaOutdated: it is not at the newest revision.
        StoreUnavailable: it does not answer.
    """
    store = open_store(settings.database_url)
    try:
        migrating.require_head(store)
    finally:
        store.close()


def bound_socket(host: str, port: int) -> socket.socket:
    """Listen on an address before anything else is done.

    Raises:
        BadRequest: something else listens there, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        raise BadRequest(
            f"cannot listen on {host}:{port}: {error.strerror}; stop what listens there, or choose "
            "another with --port or SPECTUNER_PORT"
        ) from error


def _parts(site: Site, scheduler: JobScheduler) -> Parts:
    settings, store = site.settings, site.store
    live = LivePlanReader(store, settings.engine_name, site.actuator.read_back, time.monotonic)
    console = StoreConsole(
        store=store,
        traffic=TrafficReader(store=store, settings=settings, live=live, now=utc_now),
        review=SiteReviewer(site=site),
        timetable=[
            JobLine(name=job.name, schedule=str(job.schedule), does=job.does, last=None)
            for job in scheduler.jobs
        ],
        now=utc_now,
        gatekeeper=SiteGatekeeper(site=site),
    )
    secret = session_secret(settings)
    return Parts(
        settings=settings,
        console=console,
        doorkeeper=TokenDoorkeeper(store, settings, secret, utc_now, time.monotonic),
        metrics=ServiceMetrics(),
        problem=_store_problem(store),
        now=utc_now,
    )


def _store_problem(store: Store) -> Callable[[], str | None]:
    wanted = migrating.head()

    def problem() -> str | None:
        try:
            found = migrating.revision_of(store)
        except TunerError as error:
            return str(error)
        if found != wanted:
            return f"the database is at revision {found or 'none'}, needed is {wanted}"
        return None

    return problem


def utc_now() -> datetime:
    """Return the time, aware, UTC."""
    return datetime.now(UTC)
