"""An OpenAI client on the wire: streams one chat completion and times what the user sees."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from tuner.demo.traffic import Prompt

MAX_RETRIES = 20
_DONE = "[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTrace:
    """One request as its client saw it.

    Attributes:
        route: class of traffic.
        ttft_s: from sending to the first text, in seconds; None without text.
        duration_s: from sending to the end, in seconds.
        gaps_s: between deliveries, in seconds.
        completion_tokens: by the engine's usage record.
        retries: times the engine said 429 and the client waited.
        error: one line; empty where the answer arrived whole.
    """

    route: str
    ttft_s: float | None = None
    duration_s: float
    gaps_s: tuple[float, ...] = ()
    completion_tokens: int = 0
    retries: int = 0
    error: str = ""


@dataclass(slots=True)
class _Stream:
    """What has arrived of one answer so far."""

    text_at: list[float] = field(default_factory=list)
    completion_tokens: int = 0
    is_finished: bool = False
    error: str = ""

    def take(self, data: Mapping[str, object], now: float) -> None:
        error, usage, choices = data.get("error"), data.get("usage"), data.get("choices")
        if isinstance(error, Mapping):
            self.error = str(error.get("message", error))
        if isinstance(usage, Mapping):
            self.completion_tokens = int(usage["completion_tokens"])
        for choice in choices if isinstance(choices, list) else ():
            if choice.get("delta", {}).get("content"):
                self.text_at.append(now)
            if choice.get("finish_reason"):
                self.is_finished = True


async def ask(client: httpx.AsyncClient, model: str, prompt: Prompt) -> ClientTrace:
    """Send one prompt and read its stream to the end; 429 is waited out as the server asks.

    Args:
        client: with the engine's address as base URL.
        model: as the engine names it.
        prompt: what to ask.
    """
    started, retries = time.monotonic(), 0
    while True:
        sent = time.monotonic()
        stream = _Stream()
        try:
            retry_after_s = await _read(client, model, prompt, stream)
        except httpx.HTTPError as error:
            stream.error = f"{type(error).__name__}: {error}"
            retry_after_s = None
        if retry_after_s is None or retries == MAX_RETRIES:
            break
        retries += 1
        await asyncio.sleep(retry_after_s)
    return _trace(prompt, stream, sent if not retries else started, retries)


async def _read(
    client: httpx.AsyncClient, model: str, prompt: Prompt, stream: _Stream
) -> float | None:
    """Read one answer; return the seconds to wait where the engine's queue is full."""
    body = {
        "model": model,
        "messages": list(prompt.messages),
        "stream": True,
        "stream_options": {"include_usage": True},
        **prompt.sampling,
    }
    headers = {"x-spectuner-route": prompt.route}
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            stream.error = "429: the engine's queue stayed full"
            return _retry_after_s(answer)
        if answer.is_error:
            stream.error = _refusal(answer.status_code, await answer.aread())
            return None
        async for line in answer.aiter_lines():
            if line.startswith("data:") and (payload := line[5:].strip()) != _DONE:
                stream.take(json.loads(payload), time.monotonic())
    if not stream.is_finished and not stream.error:
        stream.error = "the stream ended without a finish reason"
    return None


def _retry_after_s(answer: httpx.Response) -> float:
    try:
        return max(0.1, float(answer.headers.get("retry-after", "1")))
    except ValueError:
        return 1.0


def _refusal(status: int, body: bytes) -> str:
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = body[:200].decode(errors="replace")
    return f"{status}: {message}"


def _trace(prompt: Prompt, stream: _Stream, sent: float, retries: int) -> ClientTrace:
    times = stream.text_at
    return ClientTrace(
        route=prompt.route,
        ttft_s=times[0] - sent if times else None,
        duration_s=time.monotonic() - sent,
        gaps_s=tuple(after - before for before, after in itertools.pairwise(times)),
        completion_tokens=stream.completion_tokens,
        retries=retries,
        error=stream.error,
    )
