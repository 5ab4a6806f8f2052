from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuner.engine.server.running import (
    RunningEngine,
    running_engine,
    slowed,
    tiny_settings,
)
from tests.tuner.engine.server.test_errors import CHAT, COMPLETIONS, refusal

MESSAGES = [{"role": "user", "content": "return the value"}]
PROMPTS = ["the user is", "return the list", "naïve café"]


@pytest.fixture
def slow_engine(tiny_model: Path) -> Iterator[RunningEngine]:
    """One row and two places in the queue."""
    settings = tiny_settings(tiny_model, max_rows=1, queue_limit=2)
    with running_engine(settings, observers=(slowed(0.05),)) as running:
        yield running


def choices_of(engine: RunningEngine, path: str = COMPLETIONS, **body: object) -> list[dict]:
    return engine.http.post(path, json=body).raise_for_status().json()["choices"]


def events_of(engine: RunningEngine, path: str, **body: object) -> list[dict]:
    answer = engine.http.post(path, json={**body, "stream": True}).raise_for_status()
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "seed": 7}])
def test_each_of_several_prompts_gets_what_it_gets_alone(
    engine: RunningEngine, sampling: dict[str, object]
):
    together = choices_of(engine, prompt=PROMPTS, max_tokens=12, **sampling)
    alone = [choices_of(engine, prompt=one, max_tokens=12, **sampling)[0] for one in PROMPTS]

    assert [choice["index"] for choice in together] == [0, 1, 2]
    assert [choice["text"] for choice in together] == [choice["text"] for choice in alone]


def test_lists_of_token_lists_are_lists_of_prompts(engine: RunningEngine):
    ids = [engine.loaded.codec.encode(prompt) for prompt in PROMPTS]
    body = {"max_tokens": 6, "temperature": 0}

    as_ids, as_text = (choices_of(engine, prompt=form, **body) for form in (ids, PROMPTS))

    assert as_ids == as_text


def test_several_answers_repeat_with_their_seed_and_differ_among_each_other(engine: RunningEngine):
    body = {"prompt": PROMPTS[0], "max_tokens": 16, "n": 4, "seed": 11}

    first, again = ([c["text"] for c in choices_of(engine, **body)] for _ in range(2))
    [alone] = choices_of(engine, **{**body, "n": 1})

    assert first == again
    assert first[0] == alone["text"]
    assert len(set(first)) == 4


def test_choices_stand_prompt_after_prompt(engine: RunningEngine):
    body = {"max_tokens": 6, "temperature": 0, "n": 2}

    texts = [choice["text"] for choice in choices_of(engine, prompt=PROMPTS, **body)]

    assert texts[::2] == texts[1::2]
    assert len(texts) == 6


def test_usage_counts_each_prompt_once_and_every_answer(engine: RunningEngine):
    body = {"prompt": PROMPTS[:2], "n": 3, "best_of": 4, "max_tokens": 5, "ignore_eos": True}
    ids = [engine.loaded.codec.encode(prompt) for prompt in PROMPTS[:2]]

    answer = engine.http.post(COMPLETIONS, json=body).raise_for_status().json()

    assert len(answer["choices"]) == 6
    assert answer["usage"]["prompt_tokens"] == sum(map(len, ids))
    assert answer["usage"]["completion_tokens"] == 2 * 4 * 5
    assert answer["metrics"]["spectuner"]["passes"] == 2 * 4 * 4


def test_best_of_gives_the_likeliest_answers_best_first(engine: RunningEngine):
    body = {"prompt": PROMPTS[0], "max_tokens": 8, "seed": 5, "logprobs": 0, "ignore_eos": True}
    every = choices_of(engine, **body, n=5)

    best = choices_of(engine, **body, n=2, best_of=5)

    ranked = sorted(every, key=lambda choice: -sum(choice["logprobs"]["token_logprobs"]))
    assert [choice["text"] for choice in best] == [choice["text"] for choice in ranked[:2]]
    assert [choice["index"] for choice in best] == [0, 1]


def test_best_of_shows_no_logprobs_that_nobody_asked_for(engine: RunningEngine):
    [choice] = choices_of(engine, prompt="a", best_of=3, max_tokens=4)

    assert choice["logprobs"] is None


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_streamed_choices_are_the_plain_ones(engine: RunningEngine, path: str):
    ask = {"prompt": PROMPTS[0]} if path == COMPLETIONS else {"messages": MESSAGES}
    body = {**ask, "n": 3, "seed": 3, "max_tokens": 10}
    key = "text" if path == COMPLETIONS else "message"

    plain = [choice[key] for choice in choices_of(engine, path, **body)]
    texts = dict.fromkeys(range(3), "")
    reasons = {}
    for event in events_of(engine, path, **body):
        for choice in event["choices"]:
            piece = choice["text"] if path == COMPLETIONS else choice["delta"]["content"]
            texts[choice["index"]] += piece
            reasons[choice["index"]] = choice["finish_reason"]

    assert list(texts.values()) == [
        one if isinstance(one, str) else one["content"] for one in plain
    ]
    assert all(reasons.values())


def test_streamed_usage_counts_all_choices(engine: RunningEngine):
    events = events_of(
        engine,
        COMPLETIONS,
        prompt=PROMPTS[:2],
        max_tokens=5,
        ignore_eos=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    counted = [event["usage"]["completion_tokens"] for event in events]

    assert counted == sorted(counted)
    assert counted[-1] == 10


def test_a_request_that_does_not_fit_into_the_queue_leaves_nothing_in_it(
    slow_engine: RunningEngine,
):
    body = {"prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": True}
    with slow_engine.http.stream("POST", COMPLETIONS, json={**body, "n": 2}) as running:
        lines = running.iter_lines()
        next(lines)
        error = refusal(slow_engine.http.post(COMPLETIONS, json={"prompt": "a", "n": 2}), 429)
        waiting = slow_engine.http.get("/spec/load").json()["waiting"]

    assert "this one brings 2" in error["message"]
    assert waiting == 1
