from __future__ import annotations

import pytest
import torch

from tuner.engine.verification.logprobs import token_logprobs, top_margins
from tuner.engine.verification.shapes import ShapeError


def test_tokens_are_reported_with_the_raw_log_softmax_and_the_best_alternatives() -> None:
    logits = torch.randn(3, 20)
    wanted = logits.log_softmax(1)
    reported = token_logprobs(logits, [4, 9, 0], 2)
    assert [entry.token_id for entry in reported] == [4, 9, 0]
    for row, entry in enumerate(reported):
        assert entry.logprob == pytest.approx(wanted[row, entry.token_id].item(), abs=1e-5)
        best, ids = wanted[row].topk(2)
        assert [token for token, _ in entry.top] == ids.tolist()
        assert [value for _, value in entry.top] == pytest.approx(best.tolist(), abs=1e-5)


def test_no_alternatives_are_reported_where_none_are_asked_for() -> None:
    (entry,) = token_logprobs(torch.zeros(1, 4), [1], 0)
    assert entry.top == ()
    assert entry.logprob == pytest.approx(-1.3862944)


def test_more_alternatives_than_tokens_gives_all_tokens() -> None:
    (entry,) = token_logprobs(torch.zeros(1, 4), [1], 20)
    assert sorted(token for token, _ in entry.top) == [0, 1, 2, 3]


def test_a_token_without_its_logits_is_refused() -> None:
    with pytest.raises(ShapeError, match="logits has shape"):
        token_logprobs(torch.zeros(2, 4), [1], 0)


def test_margin_is_the_lead_of_the_best_token() -> None:
    logits = torch.tensor([[1.0, 4.0, 3.5], [2.0, 2.0, -1.0]])
    assert top_margins(logits).tolist() == [0.5, 0.0]
    assert top_margins(logits.bfloat16()).tolist() == [0.5, 0.0]
