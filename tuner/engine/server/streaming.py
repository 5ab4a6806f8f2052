"""Answers a generating request, as one JSON body or as server-sent events.

Whoever stops reading has its request cancelled within one step, also while it still queues.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive

from tuner.engine.errors import EngineError, QueueFull
from tuner.engine.loop import DeltaStream
from tuner.engine.request import Delta, RequestCounts
from tuner.engine.server.answer import joined, metrics_of, total_of, usage_of
from tuner.engine.server.candidates import RowRequests
from tuner.engine.server.errors import error_body
from tuner.engine.server.merging import merged
from tuner.engine.server.parts import EngineParts
from tuner.engine.server.schemas import GenerationBody, StreamOptions
from tuner.engine.server.shape import AnswerShape

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamForm:
    """How a request's chunks look.

    Attributes:
        shape: the endpoint's objects.
        options: what the client asked for besides deltas.
        rows: what is answered.
        with_token_ids: every token must be in some chunk.
    """

    shape: AnswerShape
    options: StreamOptions
    rows: RowRequests
    with_token_ids: bool

    @property
    def is_counted(self) -> bool:
        """True where every chunk carries the usage so far."""
        return self.options.include_usage and self.options.continuous_usage_stats


async def respond(
    http: Request,
    rows: RowRequests,
    body: GenerationBody,
    shape: AnswerShape,
    parts: EngineParts,
) -> Response:
    """Run a request and return its answer.

    Raises:
        EngineError: the core refused the request, or it failed before it was streamed.
    """
    try:
        streams = await parts.loop.streams(rows.rows)
    except QueueFull:
        parts.metrics.reject(rows.rows[0].route)
        raise
    if body.stream:
        form = StreamForm(
            shape=shape,
            options=body.stream_options or StreamOptions(),
            rows=rows,
            with_token_ids=bool(body.return_token_ids),
        )
        return StreamingResponse(
            _events(http, streams, form),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache"},
        )
    async with _cancelled_when_gone(http, streams):
        wholes = [joined([delta async for delta in stream]) for stream in streams]
    counts = total_of([whole.counts for whole in wholes], rows.prompt_tokens)
    spent = {"usage": usage_of(counts), "metrics": metrics_of(counts, wholes[-1].setting)}
    return JSONResponse({**shape.body(rows.chosen(wholes)), **spent})


@asynccontextmanager
async def _cancelled_when_gone(
    http: Request, streams: Sequence[DeltaStream]
) -> AsyncIterator[None]:
    watcher = asyncio.create_task(_cancel_when_gone(http.receive, streams))
    try:
        yield
    finally:
        watcher.cancel()
        _cancel_all(streams)


async def _cancel_when_gone(receive: Receive, streams: Sequence[DeltaStream]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    _cancel_all(streams)


def _cancel_all(streams: Sequence[DeltaStream]) -> None:
    for stream in streams:
        stream.cancel()


async def _events(
    http: Request, streams: Sequence[DeltaStream], form: StreamForm
) -> AsyncIterator[bytes]:
    async with _cancelled_when_gone(http, streams):
        try:
            async for chunk in _chunks(streams, form):
                yield _event(chunk)
        except EngineError as error:
            _LOGGER.warning("request %s failed: %s", streams[0].request_id, error)
            yield _event(error_body(error))
    yield b"data: [DONE]\n\n"


async def _chunks(
    streams: Sequence[DeltaStream], form: StreamForm
) -> AsyncIterator[dict[str, object]]:
    """Yield one chunk per target pass of a row that has something to say."""
    prompt_tokens = form.rows.prompt_tokens
    counts = [RequestCounts(prompt_tokens=len(row.prompt_ids)) for row in form.rows.rows]
    for index in range(len(streams)):
        opening = form.shape.opening(index)
        if opening is not None:
            yield _with_usage(opening, total_of(counts, prompt_tokens), form)
    last: Delta | None = None
    async with aclosing(merged(streams)) as deltas:
        async for index, last in deltas:
            counts[index] = last.counts
            chunk = form.shape.chunk(index, last) if _says_something(last, form) else None
            if chunk is not None:
                yield _with_usage(chunk, total_of(counts, prompt_tokens), form)
    if form.options.include_usage and last is not None:
        total = total_of(counts, prompt_tokens)
        usage = {"usage": usage_of(total), "metrics": metrics_of(total, last.setting)}
        yield {**form.shape.usage_chunk(), **usage}


def _says_something(delta: Delta, form: StreamForm) -> bool:
    """Tell whether a delta needs a chunk.

    Text that may still become a stop string is held back, and such a pass is silent, unless the
    reader wants the tokens themselves or counts them chunk by chunk.
    """
    if delta.text or delta.finish_reason is not None or delta.logprobs:
        return True
    return bool(delta.token_ids) and (form.with_token_ids or form.is_counted)


def _with_usage(
    chunk: dict[str, object], counts: RequestCounts, form: StreamForm
) -> dict[str, object]:
    if not form.options.include_usage:
        return chunk
    return {**chunk, "usage": usage_of(counts) if form.is_counted else None}


def _event(data: dict[str, object]) -> bytes:
    # ASCII only: many clients split lines at U+2028 and U+0085 too, which JSON leaves bare.
    encoded = json.dumps(data, separators=(",", ":")).encode()
    return b"data: " + encoded + b"\n\n"
