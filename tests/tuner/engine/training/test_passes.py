"""Answers are cut into passes as speculation would have cut them."""

from __future__ import annotations

import pytest
import torch

from tuner.engine.training.passes import fold_passes, sum_passes


def _walk(keep: list[float], k: int) -> tuple[int, list[int]]:
    """Count passes one by one where each token is surely kept or surely refused."""
    passes, accepted, place = 0, [0] * k, 1
    while place < len(keep):
        passes += 1
        kept = 0
        while kept < k and place + kept < len(keep) and keep[place + kept] == 1.0:
            accepted[kept] += 1
            kept += 1
        place += kept + 1
    return passes, accepted


@pytest.mark.parametrize("k", [1, 3, 5])
def test_sure_tokens_are_folded_as_a_walk_would_count_them(k: int) -> None:
    rng = torch.Generator().manual_seed(k)
    for length in (2, 5, 40):
        keep = (torch.rand(length, generator=rng) < 0.6).float()
        folded = fold_passes(keep[:, None].expand(-1, k))
        expected_passes, expected_accepted = _walk(keep.tolist(), k)
        assert folded.passes == pytest.approx(expected_passes)
        assert folded.accepted_by_position == pytest.approx(expected_accepted)


def test_uniform_tokens_give_the_closed_formula_of_tokens_per_pass() -> None:
    keep = torch.full((20_001,), 0.7)
    folded = fold_passes(keep[:, None].expand(-1, 3))
    assert folded.tokens / folded.passes == pytest.approx((1 - 0.7**4) / (1 - 0.7), rel=1e-3)
    assert [a / folded.passes for a in folded.accepted_by_position] == pytest.approx(
        [0.7, 0.49, 0.343], rel=1e-3
    )


def test_each_position_is_judged_by_its_own_column() -> None:
    keep = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    folded = fold_passes(keep)
    assert folded.passes == 2.0
    assert folded.accepted_by_position == (1.0, 0.0)
    assert folded.drafted_by_position == (2.0, 1.0)


def test_courses_add_up() -> None:
    parts = [fold_passes(torch.ones(4, 2)), fold_passes(torch.zeros(3, 2))]
    total = sum_passes(parts)
    assert (total.passes, total.tokens) == (3.0, 5)
    assert total.accepted_by_position == (1.0, 1.0)
