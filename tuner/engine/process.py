"""The engine's process: binds the port, loads the model, serves until told to end.

While the model loads every path answers 503. On SIGINT or SIGTERM no new connection and no new
request is taken, open ones get a grace period to finish, the rest end with an error that says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

import prometheus_client
import uvicorn
from starlette.types import ASGIApp
from transformers.utils import logging as transformers_logging

from tuner.engine.connections import (
    DEFAULT_MAX_CONNECTIONS,
    ConnectionLimits,
    limited_protocol,
)
from tuner.engine.grammar import GrammarCompiler
from tuner.engine.listening import bind, require_safe, url_of
from tuner.engine.loading import ENGINE_VERSION, LoadedEngine, load_engine
from tuner.engine.loop import EngineLoop
from tuner.engine.metrics import EngineMetrics, LiveGauges
from tuner.engine.server.app import create_app
from tuner.engine.server.gate import StartupGate
from tuner.engine.server.parts import EngineParts
from tuner.engine.server.prompts import PromptReader
from tuner.engine.settings import EngineSettings

_CLOSE_S = 2
_DRAIN_POLL_S = 0.05
_KEEP_ALIVE_S = 75
_LEAVE_S = 3
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProcessSettings:
    """How the engine's process runs.

    Attributes:
        engine: what is loaded.
        host: interface to listen on.
        port: port to listen on; 0 for any free one.
        api_key: key that clients must send; None or empty for none.
        drain_s: seconds that open requests get at the end.
        max_connections: connections held open at most, idle ones included.
        allowed_hosts: names that it answers to without a key, beside those of loopback.
    """

    engine: EngineSettings = field(default_factory=EngineSettings)
    host: str = "127.0.0.1"
    port: int = 8401
    api_key: str | None = field(default=None, repr=False)
    drain_s: float = 20.0
    max_connections: int = DEFAULT_MAX_CONNECTIONS
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServedEngine:
    """A started engine and the application in front of it.

    Attributes:
        loop: its thread.
        app: its HTTP application.
    """

    loop: EngineLoop
    app: ASGIApp


def run_engine(
    settings: EngineProcessSettings, on_ready: Callable[[str], None] = lambda url: None
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: how the process runs.
        on_ready: called with the engine's address once the model is loaded.

    Raises:
        StartupError: the port, the host or the model cannot be used; ends the process with its
            `exit_code`.
    """
    require_safe(settings.host, settings.api_key)
    transformers_logging.disable_progress_bar()
    # Its lines go where all others go, with their time.
    transformers_logging.disable_default_handler()
    transformers_logging.enable_propagation()
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = EngineMetrics()
    with bind(settings.host, settings.port) as listener:
        loading = BackgroundLoad(lambda: load_engine(settings.engine, (metrics.observe,)))
        try:
            asyncio.run(_serve(settings, listener, loading, metrics, on_ready))
        finally:
            loading.leave()


def start_engine(
    loaded: LoadedEngine,
    metrics: EngineMetrics,
    api_key: str | None,
    allowed_hosts: tuple[str, ...] = (),
) -> ServedEngine:
    """Start a loaded engine's thread and return its application.

    Args:
        loaded: the engine.
        metrics: what its journal reports to.
        api_key: key that clients must send; None or empty for none.
        allowed_hosts: names that it answers to without a key, beside those of loopback.
    """
    loop = EngineLoop(loaded.core)
    metrics.is_planned = loaded.plan.has_ruled
    metrics.registry.register(
        LiveGauges(lambda: loop.load, loaded.plan, loaded.journal, ENGINE_VERSION)
    )
    prompts = PromptReader(loaded.codec)
    parts = EngineParts(
        loop=loop,
        journal=loaded.journal,
        plan=loaded.plan,
        capture=loaded.capture,
        metrics=metrics,
        prompts=prompts,
        grammars=GrammarCompiler(
            prompts.tokenizer_json,
            eos_ids=loaded.codec.eos_ids,
            vocab_size=loaded.capabilities.vocab_size,
        ),
        capabilities=loaded.capabilities,
        pinned=loaded.pinned,
        version=ENGINE_VERSION,
        boot_id=loaded.journal.boot_id,
        started_at=int(time.time()),
        api_key=api_key or None,
        allowed_hosts=allowed_hosts,
    )
    loop.start()
    return ServedEngine(loop, create_app(parts))


class EngineServer(uvicorn.Server):
    """Uvicorn that lets the engine finish before it closes connections.

    Attributes:
        engine: the loop to end with; None while the model loads.
    """

    def __init__(
        self, app: ASGIApp, drain_s: float, limits: ConnectionLimits | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            http=limited_protocol(limits or ConnectionLimits()),
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_CLOSE_S,
        )
        super().__init__(config)
        self.engine: EngineLoop | None = None
        self._drain_s = drain_s

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End cleanly on the first signal, at once on the second, always with exit code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        event_loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            event_loop.add_signal_handler(number, self.end)
        try:
            yield
        finally:
            for number in _SIGNALS:
                event_loop.remove_signal_handler(number)

    def end(self) -> None:
        """Stop serving; a second call does not wait for open requests."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no new connection, let open requests finish, then end the engine."""
        for server in self.servers:
            server.close()
        if self.engine is not None:
            self.engine.close()
            await self._drain(self.engine)
            await asyncio.to_thread(self.engine.stop)
        await super().shutdown(sockets)

    async def _drain(self, engine: EngineLoop) -> None:
        for _ in range(round(self._drain_s / _DRAIN_POLL_S)):
            if self.force_exit or not engine.has_open_requests:
                return
            await asyncio.sleep(_DRAIN_POLL_S)


class BackgroundLoad:
    """A load in a thread of its own, so that serving and signals need not wait for it.

    Attributes:
        future: the loaded engine, or why there is none.
    """

    def __init__(self, load: Callable[[], LoadedEngine]) -> None:
        """Start loading."""
        self.future: Future[LoadedEngine] = Future()
        self.future.set_running_or_notify_cancel()
        self._load = load
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Wait a moment for a load that nobody wants any more, then end the process.

        The interpreter cannot be taken down around a thread that is inside torch; such a process
        would end with SIGABRT.
        """
        self._thread.join(_LEAVE_S)
        if self._thread.is_alive():
            logging.shutdown()
            os._exit(0)

    def _run(self) -> None:
        try:
            self.future.set_result(self._load())
        except Exception as error:  # noqa: BLE001, the edge of the thread: the awaiting side raises
            self.future.set_exception(error)


async def _serve(
    settings: EngineProcessSettings,
    listener: socket.socket,
    loading: BackgroundLoad,
    metrics: EngineMetrics,
    on_ready: Callable[[str], None],
) -> None:
    gate = StartupGate()
    limits = ConnectionLimits(max_connections=settings.max_connections)
    server = EngineServer(gate, settings.drain_s, limits)
    url = url_of(listener)

    async def bring_up() -> None:
        try:
            loaded = await asyncio.wrap_future(loading.future)
            hosts = (settings.host, *settings.allowed_hosts)
            served = start_engine(loaded, metrics, settings.api_key, hosts)
        except Exception:
            server.end()
            raise
        server.engine, gate.app = served.loop, served.app
        on_ready(url)

    bringing = asyncio.create_task(bring_up())
    await server.serve(sockets=[listener])
    bringing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await bringing
