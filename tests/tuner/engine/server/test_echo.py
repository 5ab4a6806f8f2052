from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from tests.tuner.engine.server.running import RunningEngine
from tests.tuner.engine.server.test_errors import COMPLETIONS

PROMPT = "return the value of the user as json"
NOISE = 1e-3


def choice_of(engine: RunningEngine, **body: object) -> dict:
    return engine.http.post(COMPLETIONS, json=body).raise_for_status().json()["choices"][0]


def reference(tiny_model: Path, ids: list[int]) -> torch.Tensor:
    """Transformers' log probabilities of every token after each prefix, [T, V]."""
    model = LlamaForCausalLM.from_pretrained(tiny_model)
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].log_softmax(-1)


@pytest.mark.parametrize("max_tokens", [0, 1, 5])
def test_the_prompts_log_probabilities_are_transformers_own(
    engine: RunningEngine, tiny_model: Path, max_tokens: int
):
    ids = engine.loaded.codec.encode(PROMPT)
    body = {"max_tokens": max_tokens, "echo": True, "logprobs": 3, "temperature": 0}

    choice = choice_of(engine, prompt=ids, ignore_eos=True, return_token_ids=True, **body)

    told = choice["logprobs"]
    wanted = reference(tiny_model, told["token_ids"])
    own = [float(wanted[place, token]) for place, token in enumerate(told["token_ids"][1:])]
    assert told["token_ids"][: len(ids)] == ids
    assert len(told["tokens"]) == len(ids) + max_tokens
    assert told["token_logprobs"][0] is None
    assert told["top_logprobs"][0] is None
    assert told["token_logprobs"][1:] == pytest.approx(own, abs=NOISE)
    tops = wanted.topk(3).values[: len(own)].flatten().tolist()
    assert list(chain(*told["top_token_logprobs"][1:])) == pytest.approx(tops, abs=NOISE)


def test_a_prompt_of_several_prefill_steps_is_scored_whole(engine: RunningEngine, tiny_model: Path):
    ids = [(7 * place) % 300 + 2 for place in range(256)]

    told = choice_of(engine, prompt=ids, max_tokens=0, echo=True, logprobs=0)["logprobs"]

    wanted = reference(tiny_model, ids)
    own = [float(wanted[place, token]) for place, token in enumerate(ids[1:])]
    assert told["token_logprobs"][1:] == pytest.approx(own, abs=NOISE)


def test_without_tokens_to_make_the_prompt_comes_back_and_nothing_else(engine: RunningEngine):
    choice = choice_of(engine, prompt=PROMPT, max_tokens=0, echo=True)

    assert choice["text"] == PROMPT
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    assert choice_of(engine, prompt=PROMPT, max_tokens=0)["text"] == ""


def test_text_and_offsets_run_on_from_the_prompt_into_the_answer(engine: RunningEngine):
    body = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0}
    plain = choice_of(engine, **body)
    choice = choice_of(engine, **body, echo=True, logprobs=1)
    told = choice["logprobs"]

    assert choice["text"] == PROMPT + plain["text"]
    assert "".join(told["tokens"][: len(engine.loaded.codec.encode(PROMPT))]) == PROMPT
    assert told["text_offset"] == [
        len("".join(told["tokens"][:place])) for place in range(len(told["tokens"]))
    ]


def test_as_lm_eval_reads_it_every_prompt_of_a_batch_is_scored(engine: RunningEngine):
    prompts = [engine.loaded.codec.encode(text) for text in (PROMPT, "the user", "a list")]
    body = {"prompt": prompts, "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0}

    answer = engine.http.post(COMPLETIONS, json={**body, "seed": 1234}).raise_for_status().json()

    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    for choice, prompt in zip(choices, prompts, strict=True):
        told = choice["logprobs"]
        assert len(told["token_logprobs"][1:-1]) == len(prompt) - 1
        for token, value, top in zip(
            told["tokens"][1:-1],
            told["token_logprobs"][1:-1],
            told["top_logprobs"][1:-1],
            strict=True,
        ):
            best = max(top, key=top.get)
            assert value <= top[best] + NOISE
            assert (value == pytest.approx(top[best], abs=1e-6)) == (token == best)


def test_a_stream_opens_with_the_prompt(engine: RunningEngine):
    body = {"prompt": PROMPT, "max_tokens": 4, "echo": True, "logprobs": 0, "temperature": 0}
    whole = choice_of(engine, **body)

    answer = engine.http.post(COMPLETIONS, json={**body, "stream": True}).raise_for_status()
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line][:-1]
    choices = [json.loads(line)["choices"][0] for line in lines]

    assert choices[0]["text"].startswith(PROMPT)
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    scored = [value for choice in choices for value in choice["logprobs"]["token_logprobs"]]
    assert scored == pytest.approx(whole["logprobs"]["token_logprobs"])


def test_a_request_without_tokens_leaves_a_trace_and_is_not_captured(engine: RunningEngine):
    engine.http.put("/spec/capture", json={"enabled": True}).raise_for_status()
    before = len(engine.traces())

    choice_of(engine, prompt=PROMPT, max_tokens=0)

    trace = engine.traces()[before]
    assert (trace.completion_tokens, trace.passes, trace.ttft_s) == (0, 0, None)
    assert engine.http.get("/spec/capture").json()["held"] == 0
