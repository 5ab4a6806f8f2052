from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path

import httpx

from collectors.records import DecodeStep, FinishReason, JournalRecord, Plan, Setting
from tests.tuner.engine.records import LOOKUP_3
from tests.tuner.engine.server.running import running_engine, slowed, tiny_settings

BODY = {"prompt": "the user is the user is", "max_tokens": 60, "ignore_eos": True}
SPECULATION = (
    None,
    {"method": "off"},
    {"method": "draft_model", "k": 4},
    {"method": "prompt_lookup", "k": 5},
    {"method": "draft_model", "k": 2, "rule": "token_match"},
)


class Breaker:
    """Breaks the step of the engine once it is told to."""

    def __init__(self) -> None:
        self.is_on = False

    def __call__(self, record: JournalRecord) -> None:
        if self.is_on and isinstance(record, DecodeStep):
            raise RuntimeError("the disk is on fire")


def test_a_fatal_fault_is_told_to_everybody_in_one_line_and_health_turns_red(tiny_model: Path):
    breaker = Breaker()
    told = "the engine had a fatal fault (RuntimeError: the disk is on fire); restart it"
    with running_engine(tiny_settings(tiny_model), observers=(slowed(0.01), breaker)) as engine:
        with engine.http.stream("POST", "/v1/completions", json={**BODY, "stream": True}) as open_:
            lines = open_.iter_lines()
            next(lines)
            breaker.is_on = True
            rest = [line for line in lines if line]
        later = engine.http.post("/v1/completions", json=BODY)
        health = engine.http.get("/health")

        assert json.loads(rest[-2].removeprefix("data: "))["error"]["message"] == told
        assert rest[-1] == "data: [DONE]"
        for answer in (later, health):
            assert answer.status_code == 503
            assert answer.json()["error"]["message"] == told
        assert engine.http.get("/spec/steps").status_code == 200


def test_a_plain_request_in_a_fatal_fault_gets_503_and_no_traceback(tiny_model: Path):
    breaker = Breaker()
    breaker.is_on = True
    with running_engine(tiny_settings(tiny_model), observers=(breaker,)) as engine:
        answer = engine.http.post("/v1/completions", json=BODY)

    assert answer.status_code == 503
    assert "Traceback" not in answer.text


def test_a_storm_of_clients_that_leave_in_mid_stream_harms_nothing(tiny_model: Path):
    rng = random.Random(5)
    plans = (Plan(), Plan(default=LOOKUP_3), Plan(default=Setting()))
    finished: dict[str, int] = {}

    async def one(client: httpx.AsyncClient, number: int) -> None:
        body = {**BODY, "stream": True, "stream_options": {"include_usage": True}, "seed": number}
        if (speculation := rng.choice(SPECULATION)) is not None:
            body["speculation"] = speculation
        chunks_to_read = rng.choice((0, 1, 5, 1000))
        await asyncio.sleep(rng.random() * 0.5)
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            events = await first_events(answer, chunks_to_read)
        if chunks_to_read == 1000:
            last = json.loads(events[-2].removeprefix("data: "))
            finished[last["id"]] = last["usage"]["completion_tokens"]

    async def storm(url: str) -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
            asked = [asyncio.create_task(one(client, number)) for number in range(60)]
            for number in range(10):
                plan = plans[number % 3].to_dict()
                (await client.put("/spec/plan", json=plan)).raise_for_status()
                await asyncio.sleep(0.05)
            await asyncio.gather(*asked)

    with running_engine(tiny_settings(tiny_model, queue_limit=100)) as engine:
        asyncio.run(storm(engine.url))
        deadline = time.monotonic() + 60
        while engine.loop.has_open_requests and time.monotonic() < deadline:
            time.sleep(0.02)
        load = engine.http.get("/spec/load").json()
        traces = engine.traces()
        records = engine.page().records

    assert (load["running"], load["waiting"], load["kv_used_ratio"]) == (0, 0, 0)
    assert len(traces) == len({trace.request_id for trace in traces}) == 60
    by_id = {trace.request_id: trace for trace in traces}
    assert len(finished) >= 5
    for request_id, tokens in finished.items():
        assert by_id[request_id].completion_tokens == tokens == 60
        assert by_id[request_id].finish_reason is FinishReason.LENGTH
    assert any(trace.finish_reason is FinishReason.CANCELLED for trace in traces)
    steps = [record for record in records if isinstance(record, DecodeStep)]
    assert len(steps) + len(traces) == len(records)


async def first_events(answer: httpx.Response, count: int) -> list[str]:
    """Read at most so many events of a stream and leave the rest unread."""
    events: list[str] = []
    lines = answer.aiter_lines()
    while len(events) < count:
        line = await anext(lines, None)
        if line is None:
            break
        events += [line] if line else []
    return events
