"""Acceptance read off finished answers is the acceptance that speculation would have had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from tuner.engine.training.draft import DraftModel
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.measure import (
    DEFAULT_TRAFFIC,
    TargetAnswer,
    TrafficPrompt,
    answer_traffic,
    keep_probs,
    measure_routes,
    read_traffic,
)
from tuner.engine.training.sampling import Sampling
from tuner.engine.training.target import Target


def _answer(
    prompt: TrafficPrompt, tokens: torch.Tensor, target_probs: torch.Tensor
) -> TargetAnswer:
    states = torch.zeros(len(tokens), 4, 48)
    return TargetAnswer(
        prompt=prompt, tokens=tokens, prompt_len=3, target_probs=target_probs, states=states
    )


def test_a_draft_equal_to_the_target_keeps_every_token(tiny_target: Target) -> None:
    model = DraftModel(tiny_target, torch.arange(128, dtype=torch.int32), num_layers=3)
    model.copy_layers(tiny_target, [0, 1, 2])
    tokens = torch.tensor([5, 9, 70, 11, 33, 2, 90])
    sampling = Sampling(temperature=0.8, top_p=1.0, repetition_penalty=1.1)
    prompt = TrafficPrompt(route="chat", messages=(("user", "x"),), sampling=sampling)
    answer = _answer(prompt, tokens, torch.ones(4))
    with torch.inference_mode():
        own_probs = keep_probs(model, answer, 2)
        kept = keep_probs(model, _answer(prompt, tokens, own_probs[:, 0]), 2)
        halved = keep_probs(model, _answer(prompt, tokens, own_probs[:, 0] * 2), 2)
    torch.testing.assert_close(kept, torch.ones(4, 2))
    torch.testing.assert_close(halved, torch.full((4, 2), 0.5))


class _CharTokenizer:
    """The two calls of a tokenizer that measuring needs, one token a character."""

    eos_token_id = 2

    def apply_chat_template(self, turns: list[dict[str, str]], **_options: bool) -> str:
        return "".join(turn["content"] for turn in turns)

    def __call__(self, text: str, **_options: bool) -> dict[str, list[int]]:
        return {"input_ids": [ord(char) % 100 + 3 for char in text]}


def test_greedy_answers_are_the_targets_best_tokens_up_to_the_limit(
    tiny_model: LlamaForCausalLM, tiny_target: Target
) -> None:
    sampling = Sampling(temperature=0, max_tokens=5)
    prompts = [
        TrafficPrompt(route="chat", messages=(("user", text),), sampling=sampling)
        for text in ("hello", "a longer question", "x")
    ]
    steps: list[int] = []
    with torch.inference_mode():
        tokenizer = cast("PreTrainedTokenizerBase", _CharTokenizer())
        answers = answer_traffic(tiny_target, tokenizer, prompts, 1, steps.append)
        for answer in answers:
            logits = tiny_model(answer.tokens[None]).logits[0, answer.prompt_len - 1 : -1]
            drawn = answer.tokens[answer.prompt_len :]
            assert torch.equal(drawn, logits.argmax(-1))
            assert drawn[-1] == 2 or len(drawn) == 5
            assert answer.target_probs.tolist() == [1.0] * len(drawn)
            final = tiny_model.model(answer.tokens[None]).last_hidden_state[0]
            torch.testing.assert_close(answer.states[:, -1], final, rtol=1e-4, atol=1e-4)
    assert steps == list(range(1, len(steps) + 1))


def test_routes_are_summed_and_all_holds_every_route(tiny_target: Target) -> None:
    model = DraftModel(tiny_target, torch.arange(64, dtype=torch.int32))
    answers = []
    for route, length in (("chat", 9), ("story", 7)):
        prompt = TrafficPrompt(
            route=route, messages=(("user", "x"),), sampling=Sampling(temperature=1)
        )
        probs = torch.full((length - 3,), 0.02)
        answers.append(_answer(prompt, torch.arange(length), probs))
    routes = measure_routes(model, answers, k=2)
    assert {name: route.tokens for name, route in routes.items()} == {
        "chat": 5,
        "story": 3,
        "all": 8,
    }
    assert routes["all"].passes == pytest.approx(routes["chat"].passes + routes["story"].passes)
    assert routes["all"].tokens_per_pass == pytest.approx(8 / routes["all"].passes)


def test_the_bundled_traffic_has_five_routes_of_fourteen_prompts_with_their_own_settings() -> None:
    prompts = read_traffic(DEFAULT_TRAFFIC)
    settings: dict[str, set[tuple[float, float, int, float]]] = {}
    for route in ("code_edit", "rag_answer", "json_extract", "chat", "story"):
        own = [prompt for prompt in prompts if prompt.route == route]
        assert len(own) >= 14
        settings[route] = {
            (
                p.sampling.temperature,
                p.sampling.top_p,
                p.sampling.top_k,
                p.sampling.repetition_penalty,
            )
            for p in own
        }
    assert len({prompt.messages for prompt in prompts}) == len(prompts)
    assert all(len(own) == 1 for own in settings.values())
    assert len(set().union(*settings.values())) == 4


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"route": "chat"}', '{"route": "chat", "messages": [{"role": "user"}]}'],
)
def test_a_malformed_line_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    good = json.dumps({"route": "chat", "messages": [{"role": "user", "content": "hi"}]})
    path = tmp_path / "traffic.jsonl"
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(TrainingError, match=r"traffic.jsonl:2: needs route"):
        read_traffic(path)


def test_a_missing_traffic_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"cannot read traffic file .*nothing.jsonl"):
        read_traffic(tmp_path / "nothing.jsonl")
