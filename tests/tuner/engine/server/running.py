"""A real engine behind a real socket, in this process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from collectors.records import DecodeStep, JournalPage, JournalRecord, RequestTrace
from tests.tuner.engine.server.tiny_model import CONTEXT_TOKENS
from tuner.engine.journal import Observer
from tuner.engine.limits import EngineLimits
from tuner.engine.listening import bind, url_of
from tuner.engine.loading import LoadedEngine, load_engine
from tuner.engine.loop import EngineLoop
from tuner.engine.metrics import EngineMetrics
from tuner.engine.process import EngineServer, start_engine
from tuner.engine.settings import EngineSettings

MODEL = "tiny"


@dataclass(frozen=True, slots=True)
class RunningEngine:
    url: str
    loaded: LoadedEngine
    loop: EngineLoop
    server: EngineServer
    http: httpx.Client

    def traces(self) -> list[RequestTrace]:
        page = self.page()
        return [record for record in page.records if isinstance(record, RequestTrace)]

    def page(self) -> JournalPage:
        answer = self.http.get("/spec/steps", params={"limit": 5000}).raise_for_status()
        return JournalPage.from_dict(answer.json())


def tiny_settings(
    model: Path, *, routes: tuple[str, ...] | None = None, max_rows: int = 4, queue_limit: int = 64
) -> EngineSettings:
    """Every step runs as its plan says, so that tests can count by it: no reference steps."""
    return EngineSettings(
        model=str(model),
        served_name=MODEL,
        draft=str(model),
        limits=EngineLimits(
            max_rows=max_rows,
            max_context_tokens=CONTEXT_TOKENS,
            queue_limit=queue_limit,
            prefill_tokens=64,
        ),
        threads=1,
        routes=routes,
        reference_interval=0,
    )


def slowed(step_s: float) -> Observer:
    """Return an observer that makes each step of the engine take longer."""

    def dawdle(record: JournalRecord) -> None:
        if isinstance(record, DecodeStep):
            time.sleep(step_s)

    return dawdle


@contextmanager
def running_engine(
    settings: EngineSettings,
    *,
    api_key: str | None = None,
    observers: tuple[Observer, ...] = (),
    drain_s: float = 0.2,
    allowed_hosts: tuple[str, ...] = (),
) -> Iterator[RunningEngine]:
    metrics = EngineMetrics()
    loaded = load_engine(settings, (metrics.observe, *observers))
    served = start_engine(loaded, metrics, api_key, allowed_hosts)
    server = EngineServer(served.app, drain_s=drain_s)
    server.engine = served.loop
    with bind("127.0.0.1", 0) as listener:
        url = url_of(listener)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        headers = {} if api_key is None else {b"authorization": f"Bearer {api_key}".encode()}
        try:
            with httpx.Client(base_url=url, timeout=60, headers=headers) as http:
                yield RunningEngine(url, loaded, served.loop, server, http)
        finally:
            server.should_exit = True
            thread.join()
