"""The probabilities of the traffic's settings are those of their definitions."""

from __future__ import annotations

import pytest
import torch

from tuner.engine.training.errors import TrainingError
from tuner.engine.training.sampling import Sampling, shaped_probs

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -3.0])
NONE_SEEN = torch.zeros(5, dtype=torch.bool)


def test_greedy_puts_all_mass_on_the_best_token() -> None:
    probs = shaped_probs(LOGITS, Sampling(temperature=0), NONE_SEEN)
    assert probs.tolist() == [1, 0, 0, 0, 0]


def test_temperature_divides_the_scores() -> None:
    probs = shaped_probs(LOGITS, Sampling(temperature=0.5), NONE_SEEN)
    torch.testing.assert_close(probs, (LOGITS / 0.5).softmax(-1))


def test_top_k_keeps_the_best_tokens_renormalised() -> None:
    probs = shaped_probs(LOGITS, Sampling(temperature=1, top_k=2), NONE_SEEN)
    torch.testing.assert_close(probs[:2], LOGITS[:2].softmax(-1))
    assert probs[2:].tolist() == [0, 0, 0]


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    plain = LOGITS.softmax(-1)
    top_p = float(plain[0] + 0.5 * plain[1])
    probs = shaped_probs(LOGITS, Sampling(temperature=1, top_p=top_p), NONE_SEEN)
    torch.testing.assert_close(probs[:2], plain[:2] / plain[:2].sum())
    assert probs[2:].tolist() == [0, 0, 0]


def test_the_repetition_penalty_lowers_seen_tokens_of_either_sign() -> None:
    seen = torch.tensor([True, False, False, True, False])
    probs = shaped_probs(LOGITS, Sampling(temperature=1, repetition_penalty=2.0), seen)
    torch.testing.assert_close(probs, torch.tensor([1.0, 1.0, 0.0, -2.0, -3.0]).softmax(-1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -0.1}, "temperature -0.1 is negative"),
        ({"top_p": 0}, "top_p 0.0 is out of range"),
        ({"max_tokens": 0}, "max_tokens 0 is too small"),
        ({"temprature": 1}, "unknown sampling setting 'temprature'"),
        ({"temperature": "warm"}, "sampling setting temperature is 'warm'"),
        ({"temperature": True}, "sampling setting temperature is True"),
    ],
)
def test_a_wrong_setting_is_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        Sampling.parse(fields)
