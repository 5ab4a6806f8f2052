"""Requests sent to time steps: some run together for some steps, then nobody reads on.

They are shadow requests of a route of their own, so they delay no live request, enter no load and
say nothing of acceptance. Whoever stops reading has its request cancelled by the engine.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from collectors.errors import InvalidRecord, SourceRefused
from collectors.http import EngineAddress, read_answer, unreachable
from collectors.records import CALIBRATION_ROUTE, OFF, Setting
from collectors.records.parsing import JsonObject, as_object, integer, items

PATH = "/v1/completions"
TIMEOUT = httpx.Timeout(10.0, read=120.0)
SEED_PROMPT = (
    "A user of our web shop writes that the invoice of last month shows two different addresses. "
    "Write a friendly answer, explain in a few steps how to correct the address, and say when the "
    "new invoice will come."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Equal requests that run together.

    Attributes:
        prompts: token ids, one prompt a request.
        setting: Setting of all.
        max_tokens: longest answer.
        steps: steps that all of them are to see together.
    """

    prompts: tuple[tuple[int, ...], ...]
    setting: Setting
    max_tokens: int
    steps: int


class _Together:
    """Counts the steps that every request has seen since the last one began."""

    def __init__(self, num_requests: int, steps: int, stopping: threading.Event) -> None:
        self._lock = threading.Lock()
        self._waiting = set(range(num_requests))
        self._left = dict.fromkeys(range(num_requests), float(steps))
        self._stopping = stopping
        self._is_over = False

    @property
    def is_over(self) -> bool:
        return self._is_over or self._stopping.is_set()

    def saw(self, place: int) -> None:
        """A request got tokens; its first ones come with the prompt and are no decode step."""
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
            elif not self._waiting:
                self._left[place] -= 1
                self._is_over = self._is_over or max(self._left.values()) <= 0

    def ended(self, place: int) -> None:
        """A request is over, by itself or by a failure: nobody need wait for it."""
        with self._lock:
            self._waiting.discard(place)
            self._left[place] = -math.inf
            self._is_over = self._is_over or max(self._left.values()) <= 0

    def failed(self) -> None:
        """End all at once."""
        self._is_over = True


def seed_tokens(address: EngineAddress, num_tokens: int) -> tuple[int, ...]:
    """Let the engine write ordinary text, to cut prompts from.

    Raises:
        SourceUnreachable: the engine does not answer.
        SourceRefused: it refused, or gives no token ids.
    """
    body = _body(SEED_PROMPT, OFF, num_tokens)
    found: list[int] = []
    for event in _events(address, body):
        found += _token_ids(event)
    if not found:
        raise SourceRefused(
            f"{address.base_url}{PATH} gave no token ids; is it the bundled engine?"
        )
    return tuple(found)


def run_together(address: EngineAddress, ask: Ask, stopping: threading.Event) -> None:
    """Send requests and read them until all have seen so many steps together.

    Raises:
        SourceUnreachable: the engine does not answer.
        SourceRefused: the engine refused a request, or gave one up.
    """
    together = _Together(len(ask.prompts), ask.steps, stopping)

    def read(place: int) -> None:
        try:
            body = _body(list(ask.prompts[place]), ask.setting, ask.max_tokens)
            for event in _events(address, body):
                if _token_ids(event):
                    together.saw(place)
                if together.is_over:
                    return
            together.ended(place)
        except BaseException:
            together.failed()
            raise

    with ThreadPoolExecutor(max_workers=len(ask.prompts)) as workers:
        try:
            for _ in workers.map(read, range(len(ask.prompts))):
                pass
        except BaseException:
            together.failed()
            raise


def _body(prompt: str | Sequence[int], setting: Setting, max_tokens: int) -> dict[str, object]:
    return {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
        "speculation": setting.to_dict(),
    }


def _events(address: EngineAddress, body: dict[str, object]) -> Iterator[JsonObject]:
    """Stream one shadow request."""
    headers = {
        **address.headers(),
        "x-spectuner-shadow": "1",
        "x-spectuner-route": CALIBRATION_ROUTE,
    }
    url = f"{address.base_url}{PATH}"
    try:
        with address.client.stream(
            "POST", url, json=body, headers=headers, timeout=TIMEOUT
        ) as response:
            if response.status_code != httpx.codes.OK:
                response.read()
                address.raise_unless_ok(read_answer(response.status_code, response, url), PATH)
            for line in response.iter_lines():
                data = line.removeprefix("data:").strip()
                if line.startswith("data:") and data != "[DONE]":
                    yield _event(data)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise unreachable(address.base_url, PATH, error) from error


def _event(data: str) -> JsonObject:
    try:
        event = as_object(json.loads(data), "event")
    except ValueError as error:
        raise InvalidRecord(f"the engine streamed what is not JSON: {data[:80]!r}") from error
    if event.get("error") is not None:
        message = as_object(event["error"], "error").get("message", "no reason given")
        raise SourceRefused(f"the engine gave up: {message}")
    return event


def _token_ids(event: JsonObject) -> list[int]:
    return [
        integer({"token": token}, "token")
        for choice in items(event, "choices")
        for token in items(as_object(choice, "choice"), "token_ids")
    ]
