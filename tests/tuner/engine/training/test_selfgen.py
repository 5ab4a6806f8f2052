"""Generated answers are the target's own, with the target's own probabilities."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from transformers import LlamaForCausalLM

from tuner.engine.training.prompts import TrainingPrompt
from tuner.engine.training.selfgen import AnswerBatch, GenerationPlan, WaitingPrompt, top_logprobs
from tuner.engine.training.shards import Answer
from tuner.engine.training.target import BatchTarget, Target

EOS = 2


def _answers(target: Target, lengths: list[int], temperature: float, seed: int = 0) -> list[Answer]:
    plan = GenerationPlan(seed=0, max_rows=4, max_answer_tokens=9)
    prompt = TrainingPrompt(kind="chat", text="x", temperature=temperature, top_p=0.9)
    rng = torch.Generator().manual_seed(5)
    waiting = deque(
        WaitingPrompt(prompt=prompt, tokens=torch.randint(3, 128, (n,), generator=rng).tolist())
        for n in lengths
    )
    model = BatchTarget(target, plan.max_rows, 64, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.inference_mode():
        return list(AnswerBatch(model, plan, EOS, generator).answers(waiting))


def test_the_largest_log_probabilities_are_found_exactly() -> None:
    logits = torch.randn(5, 512, generator=torch.Generator().manual_seed(0)) * 3
    values, ids = top_logprobs(logits, 7)
    expected = logits.log_softmax(-1).topk(7)
    torch.testing.assert_close(values, expected.values)
    assert torch.equal(ids, expected.indices)


def test_greedy_answers_are_those_of_transformers_whatever_the_batch_mates(
    tiny_model: LlamaForCausalLM, tiny_target: Target
) -> None:
    answers = _answers(tiny_target, [4, 9, 2, 6, 3, 8, 5], temperature=0.0)
    assert len(answers) == 7
    for answer in answers:
        tokens = answer.tokens.long()
        with torch.inference_mode():
            logprobs = (
                tiny_model(tokens[None]).logits[0, answer.prompt_len - 1 : -1].log_softmax(-1)
            )
        assert torch.equal(logprobs.argmax(-1), tokens[answer.prompt_len :])
        kept = logprobs.gather(1, answer.top_ids.long())
        torch.testing.assert_close(kept, answer.top_logprobs.float(), rtol=1e-2, atol=1e-2)


def test_answers_end_at_the_end_token_or_at_the_limit(tiny_target: Target) -> None:
    for answer in _answers(tiny_target, [4] * 40, temperature=1.0):
        drawn = answer.tokens[answer.prompt_len :].tolist()
        assert drawn[-1] == EOS or len(drawn) == 9
        assert EOS not in drawn[:-1]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_same_seed_gives_the_same_answers(tiny_target: Target, temperature: float) -> None:
    first = _answers(tiny_target, [4, 6, 5], temperature)
    again = _answers(tiny_target, [4, 6, 5], temperature)
    assert [answer.tokens.tolist() for answer in first] == [
        answer.tokens.tolist() for answer in again
    ]
