"""Runs the engine core in its own thread and carries its deltas to asyncio.

The core is not thread-safe: everything that touches it is a command, run in the engine thread
between two steps. The server awaits; nothing it does can block a step.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

from collectors.records import FinishReason
from tuner.engine.errors import (
    EngineError,
    EngineUnavailable,
    InvalidRequest,
    RequestCancelled,
    RequestFailed,
)
from tuner.engine.request import Delta, EngineRequest

_LOGGER = logging.getLogger(__name__)

Command: TypeAlias = Callable[[], None]


class SteppingCore(Protocol):
    """What the loop asks of an engine core."""

    @property
    def has_work(self) -> bool:
        """True while a request runs or waits."""

    @property
    def num_running(self) -> int:
        """Sequences in the batch."""

    @property
    def num_waiting(self) -> int:
        """Requests queued."""

    @property
    def kv_used_ratio(self) -> float:
        """Share of the KV slots' positions in use, 0 to 1."""

    def submit(self, *requests: EngineRequest) -> None:
        """Queue the rows of one request, or refuse them all with an `EngineError`."""

    def cancel(self, request_id: str) -> bool:
        """Drop a request; no delta of it comes any more."""

    def step(self) -> list[Delta]:
        """Do one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """How busy the engine is.

    Attributes:
        running: sequences in the batch.
        waiting: requests queued.
        kv_used_ratio: share of the KV slots' positions in use, 0 to 1.
    """

    running: int
    waiting: int
    kv_used_ratio: float


class DeltaStream:
    """What one request is answered with, as an async iterator in the loop that asked.

    It ends after the delta that carries a finish reason.
    """

    def __init__(self, request_id: str, owner: EngineLoop) -> None:
        self.request_id = request_id
        self.event_loop = asyncio.get_running_loop()
        self._owner = owner
        self._queue: asyncio.Queue[Delta | EngineError] = asyncio.Queue()
        self._is_finished = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        """Wait for the next delta.

        Raises:
            RequestFailed: the core gave up on this request.
            InvalidRequest: what the request asked for left no token to draw.
            RequestCancelled: somebody cancelled it.
            EngineUnavailable: the engine stopped or had a fatal fault.
        """
        if self._is_finished:
            raise StopAsyncIteration
        item = await self._queue.get()
        if isinstance(item, EngineError):
            self._is_finished = True
            raise item
        self._is_finished = item.finish_reason is not None
        if item.finish_reason is FinishReason.ERROR:
            raise InvalidRequest(item.error) if item.is_refused else RequestFailed(item.error)
        return item

    def cancel(self) -> None:
        """Tell the engine that nobody waits any more; without effect once finished."""
        if not self._is_finished:
            self._owner.cancel(self.request_id)

    def put(self, item: Delta | EngineError) -> None:
        """Add a delta, or the error that ends the stream; event loop thread only."""
        self._queue.put_nowait(item)


class EngineLoop:
    """One thread that steps the core while there is work and sleeps while there is none."""

    def __init__(self, core: SteppingCore) -> None:
        self._core = core
        self._commands: deque[Command] = deque()
        self._wake = threading.Condition()
        self._streams: dict[str, DeltaStream] = {}
        self._end: str | None = None
        self._closing: str | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def fault(self) -> str | None:
        """Why no request can be served any more, in one line; None while all is well."""
        return self._end

    @property
    def refusal(self) -> str | None:
        """Why no new request is taken, in one line; None while they are."""
        return self._end or self._closing

    @property
    def load(self) -> EngineLoad:
        """How busy the engine is now."""
        core = self._core
        return EngineLoad(
            running=core.num_running, waiting=core.num_waiting, kv_used_ratio=core.kv_used_ratio
        )

    @property
    def has_open_requests(self) -> bool:
        """True while a request runs, waits or is being handed over."""
        return bool(self._streams or self._commands)

    def start(self) -> None:
        """Start the engine thread."""
        self._thread.start()

    def close(self) -> None:
        """Take no new request from now on; those that run or wait go on."""
        self._closing = "the engine is shutting down and takes no new request; send it elsewhere"

    def stop(self, reason: str = "the engine is shutting down") -> None:
        """End after the step in progress; every open request fails with the reason."""
        with self._wake:
            self._end = self._end or reason
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    async def stream(self, request: EngineRequest) -> DeltaStream:
        """Hand a request of one row to the core and return its deltas; see `streams`."""
        (stream,) = await self.streams([request])
        return stream

    async def streams(self, requests: Sequence[EngineRequest]) -> list[DeltaStream]:
        """Hand the rows of one request to the core, all or none, and return their deltas.

        Raises:
            EngineError: the core refused the request.
            EngineUnavailable: the engine is stopping or had a fatal fault.
        """
        if self._closing is not None:
            raise EngineUnavailable(self._closing)
        streams = [DeltaStream(request.request_id, self) for request in requests]
        accepted: Future[None] = Future()
        self._enqueue(lambda: self._submit(requests, streams, accepted))
        try:
            await asyncio.wrap_future(accepted)
        except asyncio.CancelledError:
            for stream in streams:
                stream.cancel()
            raise
        return streams

    def cancel(self, request_id: str) -> None:
        """Drop a request between two steps; its slot is free at once. Any thread may call it."""
        try:
            self._enqueue(lambda: self._cancel(request_id))
        except EngineUnavailable:
            _LOGGER.debug("request %s ended with the engine", request_id)

    def _enqueue(self, command: Command) -> None:
        with self._wake:
            if self._end is not None:
                raise EngineUnavailable(self._end)
            self._commands.append(command)
            self._wake.notify()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._run_commands()
                if self._core.has_work:
                    self._deliver(self._core.step())
        except Exception as error:
            _LOGGER.critical("the engine had a fatal fault", exc_info=error)
            with self._wake:
                self._end = f"the engine had a fatal fault ({_line_of(error)}); restart it"
        self._run_commands()
        self._fail_all(EngineUnavailable(self._end or "the engine thread ended"))

    def _wait_for_work(self) -> bool:
        with self._wake:
            while self._end is None and not self._commands and not self._core.has_work:
                self._wake.wait()
            return self._end is None

    def _run_commands(self) -> None:
        while self._commands:
            self._commands.popleft()()

    def _submit(
        self,
        requests: Sequence[EngineRequest],
        streams: Sequence[DeltaStream],
        accepted: Future[None],
    ) -> None:
        if not accepted.set_running_or_notify_cancel():
            return
        try:
            if self._end is not None:
                raise EngineUnavailable(self._end)
            self._core.submit(*requests)
        except Exception as error:  # noqa: BLE001, the edge of one request: its caller gets it
            accepted.set_exception(error)
            return
        self._streams.update((stream.request_id, stream) for stream in streams)
        accepted.set_result(None)

    def _cancel(self, request_id: str) -> None:
        stream = self._streams.pop(request_id, None)
        if stream is None:
            return
        if self._end is None:
            self._core.cancel(request_id)
        _put_all(stream.event_loop, [(stream, RequestCancelled("the request was cancelled"))])

    def _deliver(self, deltas: Iterable[Delta]) -> None:
        batches: dict[asyncio.AbstractEventLoop, list[tuple[DeltaStream, Delta]]] = {}
        for delta in deltas:
            stream = self._streams.get(delta.request_id)
            if stream is None:
                continue
            batches.setdefault(stream.event_loop, []).append((stream, delta))
            if delta.finish_reason is not None:
                del self._streams[delta.request_id]
        for event_loop, batch in batches.items():
            if not _put_all(event_loop, batch):
                for stream, _ in batch:
                    self._cancel(stream.request_id)

    def _fail_all(self, error: EngineError) -> None:
        for stream in self._streams.values():
            _put_all(stream.event_loop, [(stream, error)])
        self._streams.clear()


def _put_all(
    event_loop: asyncio.AbstractEventLoop,
    batch: Sequence[tuple[DeltaStream, Delta | EngineError]],
) -> bool:
    def put() -> None:
        for stream, item in batch:
            stream.put(item)

    try:
        event_loop.call_soon_threadsafe(put)
    except RuntimeError:
        _LOGGER.debug("an event loop closed before its %d deltas came", len(batch))
        return False
    return True


def _line_of(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
