from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import httpx
import openai
import pytest

from collectors.records import FinishReason
from tests.tuner.engine.server.running import (
    MODEL,
    RunningEngine,
    running_engine,
    slowed,
    tiny_settings,
)

PROMPT = "the user is a person who reads the answer"
DRAFT_4 = {"method": "draft_model", "k": 4}


def stream(engine: RunningEngine, path: str = "/v1/completions", **body: object) -> list[dict]:
    """Return the chunks of a streamed answer, [DONE] checked and left out."""
    wanted = {"temperature": 0, "stream": True, **body}
    with engine.http.stream("POST", path, json=wanted) as answer:
        answer.read()
    events = [event for event in answer.text.split("\n\n") if event]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


def text_of(chunks: list[dict]) -> str:
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


def complete(engine: RunningEngine, **body: object) -> dict:
    wanted = {"prompt": PROMPT, "temperature": 0, **body}
    return engine.http.post("/v1/completions", json=wanted).raise_for_status().json()


@pytest.fixture
def slow_engine(tiny_model: Path) -> Iterator[RunningEngine]:
    """One row and one place in the queue; each step takes at least 50 ms."""

    settings = tiny_settings(tiny_model, max_rows=1, queue_limit=1)
    with running_engine(settings, observers=(slowed(0.05),)) as running:
        yield running


def wait_until_idle(engine: RunningEngine, within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        state = engine.http.get("/health").json()
        if state["running"] == state["waiting"] == 0:
            return
        time.sleep(0.01)
    raise AssertionError(f"still busy after {within_s} s: {state}")


async def give_up_once(engine: RunningEngine, body: dict[str, object], state: str) -> None:
    """Ask, and go away as soon as the engine counts the request as running or waiting."""
    async with httpx.AsyncClient(base_url=engine.url, trust_env=False, timeout=60) as client:
        asked = asyncio.create_task(client.post("/v1/completions", json=body))
        while not (await client.get("/health")).json()[state]:
            assert not asked.done()
            await asyncio.sleep(0.01)
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked


@pytest.mark.parametrize("speculation", [{}, DRAFT_4])
def test_streamed_text_is_the_text_of_the_plain_answer(
    engine: RunningEngine, speculation: dict[str, object]
):
    body = {"prompt": PROMPT, "max_tokens": 40, "speculation": speculation}

    chunks = stream(engine, **body)

    assert text_of(chunks) == complete(engine, **body)["choices"][0]["text"]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_events_are_ascii_so_that_no_client_splits_a_line_in_the_text(engine: RunningEngine):
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 40, "stream": True}
    answer = engine.http.post("/v1/completions", json=body)
    events = answer.text.split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]

    assert answer.text.isascii()
    assert not text_of(chunks).isascii()
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_a_chunk_is_one_target_pass_of_the_request(engine: RunningEngine):
    chunks = stream(
        engine,
        prompt=PROMPT,
        max_tokens=40,
        speculation=DRAFT_4,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    deltas, last = chunks[:-1], chunks[-1]
    done = [chunk["usage"]["completion_tokens"] for chunk in deltas]

    assert len(deltas) == 1 + last["metrics"]["spectuner"]["passes"]
    assert done[0] == 1
    assert all(1 <= later - earlier <= 5 for earlier, later in pairwise(done))
    assert done[-1] == last["usage"]["completion_tokens"] == 40
    assert last["choices"] == []
    assert last["metrics"]["speculative_decoding"]["num_spec_tokens"] == 4


def test_usage_comes_last_and_is_null_before_when_only_included(engine: RunningEngine):
    chunks = stream(engine, prompt=PROMPT, max_tokens=5, stream_options={"include_usage": True})

    assert [chunk["usage"] is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1]["usage"]["completion_tokens"] == 5


def test_without_stream_options_no_chunk_has_usage(engine: RunningEngine):
    chunks = stream(engine, prompt=PROMPT, max_tokens=5)

    assert not any("usage" in chunk or "metrics" in chunk for chunk in chunks)
    assert all(chunk["choices"] for chunk in chunks)


def test_a_chat_stream_opens_with_the_role(engine: RunningEngine):
    chunks = stream(
        engine,
        "/v1/chat/completions",
        messages=[{"role": "user", "content": "hi"}],
        max_tokens=8,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    first = chunks[0]

    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["usage"]["completion_tokens"] == 0
    assert first["usage"]["prompt_tokens"] == chunks[-1]["usage"]["prompt_tokens"] > 0
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:-1])


def test_token_ids_and_logprobs_of_all_chunks_cover_every_token(engine: RunningEngine):
    body = {
        "prompt": PROMPT,
        "max_tokens": 40,
        "speculation": DRAFT_4,
        "return_token_ids": True,
        "logprobs": 1,
    }
    whole = complete(engine, **body)["choices"][0]

    choices = [chunk["choices"][0] for chunk in stream(engine, **body)]

    assert [i for choice in choices for i in choice["token_ids"]] == whole["token_ids"]
    for key in ("tokens", "token_logprobs", "text_offset", "token_ids"):
        joined = [entry for choice in choices for entry in choice["logprobs"][key]]
        assert joined == whole["logprobs"][key]


@pytest.mark.parametrize("speculation", [{}, DRAFT_4])
def test_no_part_of_a_stop_string_is_ever_delivered(
    engine: RunningEngine, speculation: dict[str, object]
):
    body = {"prompt": PROMPT, "max_tokens": 40, "speculation": speculation}
    whole = text_of(stream(engine, **body))
    stops = [whole[start : start + size] for start in range(2, 30, 3) for size in (1, 2, 5, 9)]

    for stop in stops:
        chunks = stream(engine, **body, stop=stop)
        final = chunks[-1]["choices"][0]
        assert text_of(chunks) == whole[: whole.index(stop)], repr(stop)
        assert (final["finish_reason"], final["stop_reason"]) == ("stop", stop)


def test_text_held_back_for_a_stop_that_never_comes_arrives_in_the_end(engine: RunningEngine):
    body = {"prompt": PROMPT, "max_tokens": 20}
    whole = complete(engine, **body)["choices"][0]["text"]

    chunks = stream(engine, **body, stop=whole[-6:] + "never")

    assert text_of(chunks) == whole
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_the_earliest_of_several_stops_wins(engine: RunningEngine):
    whole = complete(engine, max_tokens=40)["choices"][0]["text"]
    early, late = whole[6:8], whole[15:18]

    choice = complete(engine, max_tokens=40, stop=[late, early])["choices"][0]

    assert choice["text"] == whole[: whole.index(early)]
    assert choice["stop_reason"] == early


def test_tokens_after_a_stop_inside_a_block_are_in_no_part_of_the_answer(engine: RunningEngine):
    body = {"max_tokens": 40, "return_token_ids": True, "logprobs": 0, "speculation": DRAFT_4}
    plain = complete(engine, **body)["choices"][0]
    tokens = plain["logprobs"]["tokens"]
    places = [
        place
        for place, token in enumerate(tokens)
        if place % 5 and token.isascii() and token not in "".join(tokens[:place])
    ]
    assert len(places) >= 5

    for place in places:
        answer = complete(engine, **body, stop=tokens[place])
        choice = answer["choices"][0]
        assert choice["token_ids"] == plain["token_ids"][: place + 1]
        assert choice["logprobs"]["tokens"] == tokens[: place + 1]
        assert answer["usage"]["completion_tokens"] == place + 1


def test_a_stream_through_the_official_client_ends_with_usage(client: openai.OpenAI):
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hi"}],
            max_tokens=8,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8
    assert chunks[-2].choices[0].finish_reason == "length"


def test_a_stream_through_the_official_async_client_gives_the_same_text(engine: RunningEngine):
    async def ask() -> str:
        async with openai.AsyncOpenAI(
            base_url=f"{engine.url}/v1", api_key="any", max_retries=0
        ) as client:
            parts = await client.completions.create(
                model=MODEL, prompt=PROMPT, max_tokens=16, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].text async for chunk in parts])

    assert asyncio.run(ask()) == complete(engine)["choices"][0]["text"]


def test_who_stops_reading_a_stream_has_it_cancelled(slow_engine: RunningEngine):
    body = {"prompt": PROMPT, "max_tokens": 200, "stream": True, "ignore_eos": True}
    with slow_engine.http.stream("POST", "/v1/completions", json=body) as answer:
        next(answer.iter_lines())
    wait_until_idle(slow_engine)

    [trace] = slow_engine.traces()
    assert trace.finish_reason is FinishReason.CANCELLED
    assert trace.completion_tokens < 200


def test_who_gives_up_on_a_plain_answer_has_it_cancelled(slow_engine: RunningEngine):
    body = {"prompt": PROMPT, "max_tokens": 200, "ignore_eos": True}
    asyncio.run(give_up_once(slow_engine, body, "running"))
    wait_until_idle(slow_engine)

    [trace] = slow_engine.traces()
    assert trace.finish_reason is FinishReason.CANCELLED
    assert trace.completion_tokens < 200


@pytest.mark.parametrize("is_streamed", [True, False])
def test_who_gives_up_while_queued_leaves_the_queue(slow_engine: RunningEngine, is_streamed: bool):
    body = {"prompt": PROMPT, "max_tokens": 200, "stream": True, "ignore_eos": True}
    with slow_engine.http.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        asyncio.run(give_up_once(slow_engine, {**body, "stream": is_streamed}, "waiting"))
        deadline = time.monotonic() + 60
        while slow_engine.http.get("/health").json()["waiting"] and time.monotonic() < deadline:
            time.sleep(0.01)
    wait_until_idle(slow_engine)

    assert sum(trace.completion_tokens > 0 for trace in slow_engine.traces()) == 1


def test_beyond_the_queue_a_request_is_refused_with_the_time_to_wait(slow_engine: RunningEngine):
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 200, "stream": True}
    long = {**body, "ignore_eos": True}
    with (
        openai.OpenAI(base_url=f"{slow_engine.url}/v1", api_key="any", max_retries=0) as client,
        slow_engine.http.stream("POST", "/v1/completions", json=long) as first,
    ):
        lines = first.iter_lines()
        next(lines)
        with slow_engine.http.stream("POST", "/v1/completions", json=long):
            with pytest.raises(openai.RateLimitError, match="requests wait, the limit is 1") as hit:
                client.completions.create(model=MODEL, prompt=PROMPT)
            assert hit.value.response.headers["retry-after"] == "1"
            assert hit.value.code == "queue_full"
    assert 'queue_rejections_total{route="other"} 1.0' in slow_engine.http.get("/metrics").text
    wait_until_idle(slow_engine)
