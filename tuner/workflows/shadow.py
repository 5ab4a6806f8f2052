"""One shadow request: a captured prompt at a given Setting, never counted as live traffic."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import httpx

from collectors.errors import CollectorError, InvalidRecord, SourceRefused, SourceUnreachable
from collectors.http import EngineAddress, read_answer, unreachable
from collectors.records import Setting
from collectors.records.parsing import JsonObject, as_object, integer, items, number
from tuner.store.captures import StoredCapture

PATH = "/v1/completions"
MAX_TRIES = 5
NO_DECODE_PASS = "no decode pass: one token is the whole answer"
"""Why an answer of one token tells nothing of a Setting: reading the prompt gave that token."""

TIMEOUT = httpx.Timeout(10.0, read=120.0)
"""A shadow request waits while live ones wait; it may be long before its first token."""

_PASSED_ON = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "min_tokens",
    "max_tokens",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "seed",
    "structured_outputs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowAnswer:
    """What came back.

    Attributes:
        token_ids: tokens delivered.
        margins: gap of the two best raw logprobs at each token, in nats; empty unless asked for.
        seconds: from sending the request to its end.
        ttft_s: from sending to the first token; None without one.
        setting: Setting of its last step, as the engine says; None where it did not.
        passes: target passes after prefill; None likewise.
        drafted: draft tokens verified; None likewise.
        accepted: draft tokens kept; None likewise.
        error: why it failed, one line; None where it did not.
    """

    token_ids: tuple[int, ...] = ()
    margins: tuple[float, ...] = ()
    seconds: float = 0.0
    ttft_s: float | None = None
    setting: Setting | None = None
    passes: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    error: str | None = None

    @property
    def has_decode_pass(self) -> bool:
        """Whether a Setting was at work at all; False for answers of one token."""
        return len(self.token_ids) > 1 or bool(self.passes)


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """A stream while it is read."""

    token_ids: list[int] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    ttft_s: float | None = None
    is_finished: bool = False
    metrics: JsonObject = field(default_factory=dict)


def shadow_body(
    capture: StoredCapture, setting: Setting, overrides: Mapping[str, object]
) -> dict[str, object]:
    """Return the body of a completion that repeats a captured request at a Setting.

    Token ids are sent where they are known, so that both arms see the very same prompt.
    """
    request = capture.request
    sampling = {name: request.sampling.get(name) for name in _PASSED_ON}
    named = {**sampling, **overrides}
    return {
        **{name: value for name, value in named.items() if value is not None},
        "prompt": list(request.prompt_ids) or request.prompt,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "speculation": setting.to_dict(),
    }


def ask(
    address: EngineAddress,
    capture: StoredCapture,
    setting: Setting,
    overrides: Mapping[str, object],
    *,
    stopping: threading.Event,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.perf_counter,
) -> ShadowAnswer:
    """Send a shadow request and read its answer; a failure is an answer with a reason.

    A full queue is waited for as long as the engine asks, a few times. Once ``stopping`` is set the
    answer is not waited for any more.
    """
    body = shadow_body(capture, setting, overrides)
    headers = {
        **address.headers(),
        "x-spectuner-shadow": "1",
        "x-spectuner-route": capture.request.route,
    }
    for _ in range(MAX_TRIES):
        answer = _try_once(address, body, headers, stopping, clock)
        if isinstance(answer, ShadowAnswer):
            return answer
        sleep(answer)
    return ShadowAnswer(error=f"the engine's queue stayed full over {MAX_TRIES} tries")


def mismatch_reason(asked: Setting, answer: ShadowAnswer) -> str | None:
    """Return why an answer does not show the Setting that was asked for; None where it does."""
    if answer.error is not None:
        return answer.error
    if not answer.token_ids:
        return "no token was delivered"
    if not answer.has_decode_pass:
        return NO_DECODE_PASS
    if answer.setting is None:
        return "the engine did not say which Setting was in force"
    found = answer.setting
    same_drafter = asked.drafter in ("", found.drafter)
    if not same_drafter or _without_drafter(asked) != _without_drafter(found):
        return f"asked for {asked.label}, but {found.label} was in force"
    return None


def _without_drafter(setting: Setting) -> dict[str, object]:
    return {**setting.to_dict(), "drafter": ""}


def _try_once(
    address: EngineAddress,
    body: Mapping[str, object],
    headers: Mapping[str, str],
    stopping: threading.Event,
    clock: Callable[[], float],
) -> ShadowAnswer | float:
    """Return the answer, or the seconds to wait where the queue is full."""
    started_s = clock()

    def elapsed() -> float:
        return clock() - started_s

    try:
        gathered = _stream(address, body, headers, stopping, elapsed)
        return gathered if isinstance(gathered, float) else _answer(gathered, elapsed())
    except CollectorError as error:
        return ShadowAnswer(seconds=elapsed(), error=str(error))


def _stream(
    address: EngineAddress,
    body: Mapping[str, object],
    headers: Mapping[str, str],
    stopping: threading.Event,
    elapsed: Callable[[], float],
) -> _Gathered | float:
    url = f"{address.base_url}{PATH}"
    try:
        with address.client.stream(
            "POST", url, json=dict(body), headers=dict(headers), timeout=TIMEOUT
        ) as response:
            if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
                return _retry_after_s(response)
            if response.status_code != httpx.codes.OK:
                response.read()
                answer = read_answer(response.status_code, response, url)
                address.raise_unless_ok(answer, PATH)
            return _gather(response, stopping, elapsed)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise unreachable(address.base_url, PATH, error) from error


def _retry_after_s(response: httpx.Response) -> float:
    given = response.headers.get("retry-after", "1")
    return min(30.0, float(given)) if given.isdigit() else 1.0


def _gather(
    response: httpx.Response, stopping: threading.Event, elapsed: Callable[[], float]
) -> _Gathered:
    gathered = _Gathered()
    for event in _events(response):
        if stopping.is_set():
            raise SourceUnreachable("the service is stopping")
        error = event.get("error")
        if error is not None:
            message = as_object(error, "error").get("message", "no reason given")
            raise SourceRefused(f"the engine gave up: {message}")
        for entry in items(event, "choices"):
            _take_choice(gathered, as_object(entry, "choice"), elapsed)
        if isinstance(event.get("metrics"), dict):
            gathered.metrics = as_object(event["metrics"], "metrics")
    if gathered.token_ids and not gathered.is_finished:
        raise SourceRefused("the stream ended without a finish reason, so the answer is cut short")
    return gathered


def _events(response: httpx.Response) -> Iterator[JsonObject]:
    for line in _lines(response):
        data = line.removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        try:
            yield as_object(json.loads(data), "event")
        except ValueError as error:
            shown = data[:80].decode(errors="replace")
            raise InvalidRecord(f"the engine streamed what is not JSON: {shown!r}") from error


def _lines(response: httpx.Response) -> Iterator[bytes]:
    """Give the lines of a stream; only CR and LF end one, U+2028 inside a text does not."""
    rest = b""
    for chunk in response.iter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield from line.split(b"\r")
    yield from rest.split(b"\r")


def _take_choice(gathered: _Gathered, choice: JsonObject, elapsed: Callable[[], float]) -> None:
    ids = [integer({"token": token}, "token") for token in items(choice, "token_ids")]
    if ids and gathered.ttft_s is None:
        gathered.ttft_s = elapsed()
    gathered.token_ids += ids
    gathered.is_finished = gathered.is_finished or choice.get("finish_reason") is not None
    logprobs = choice.get("logprobs")
    if logprobs is not None:
        tops = items(as_object(logprobs, "logprobs"), "top_token_logprobs")
        gathered.margins += [_margin(top) for top in tops]


def _margin(top: object) -> float:
    """Return the gap of the two best logprobs; a single one has no rival."""
    values = sorted(
        (number({"value": value}, "value") for value in items({"top": top}, "top")), reverse=True
    )
    return values[0] - values[1] if len(values) > 1 else float("inf")


def _answer(gathered: _Gathered, seconds: float) -> ShadowAnswer:
    own = gathered.metrics.get("spectuner")
    shared = gathered.metrics.get("speculative_decoding")
    spectuner = as_object(own, "metrics.spectuner") if own is not None else {}
    speculative = as_object(shared, "metrics.speculative_decoding") if shared is not None else {}
    setting = spectuner.get("setting")
    return ShadowAnswer(
        token_ids=tuple(gathered.token_ids),
        margins=tuple(gathered.margins),
        seconds=seconds,
        ttft_s=gathered.ttft_s,
        setting=None if setting is None else Setting.from_dict(as_object(setting, "setting")),
        passes=_count(spectuner, "passes"),
        drafted=_count(speculative, "num_draft_tokens"),
        accepted=_count(speculative, "num_accepted_draft_tokens"),
    )


def _count(data: JsonObject, key: str) -> int | None:
    return integer(data, key) if data.get(key) is not None else None
