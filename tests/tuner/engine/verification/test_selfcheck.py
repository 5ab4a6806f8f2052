from __future__ import annotations

import pytest
import torch

from tuner.engine.verification.selfcheck import (
    chi_square_p_value,
    claimed_probs_p_value,
    sibling_claims,
)
from tuner.engine.verification.shapes import ShapeError

DRAWN_FROM = torch.tensor([0.2, 0.2, 0.6])


def draws(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(DRAWN_FROM, count, replacement=True, generator=generator)


def test_a_drafter_that_claims_other_probabilities_than_it_draws_from_is_flagged() -> None:
    tokens = draws(1000)
    assert claimed_probs_p_value(tokens, torch.full((1000, 3), 1 / 3)) < 1e-9


def test_an_honest_drafter_is_flagged_as_often_as_stated() -> None:
    p_values = torch.tensor(
        [claimed_probs_p_value(draws(500, seed), DRAWN_FROM.expand(500, 3)) for seed in range(400)]
    )
    for level in (0.05, 0.5):
        share = (p_values < level).double().mean().item()
        assert share == pytest.approx(level, abs=4 * (level * (1 - level) / 400) ** 0.5)


def test_claims_that_differ_from_draw_to_draw_are_added_up() -> None:
    generator = torch.Generator().manual_seed(1)
    claims = torch.rand(4000, 6, generator=generator)
    claims /= claims.sum(1, keepdim=True)
    tokens = torch.multinomial(claims, 1, generator=generator).squeeze(1)
    assert claimed_probs_p_value(tokens, claims) > 1e-3
    assert claimed_probs_p_value(tokens, claims.flip(1) ** 3) < 1e-9


def test_siblings_are_claimed_from_what_the_ones_before_them_left() -> None:
    """Tokens 2, 0 and 1 after the root, 1 after the first of them."""
    probs = torch.tensor([[0.2, 0.2, 0.6], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.3, 0.3, 0.4]])
    claims = sibling_claims(probs, columns=[2, 0, 1, 1], parents=[-1, -1, -1, 0])
    wanted = torch.tensor([[0.2, 0.2, 0.6], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    torch.testing.assert_close(claims, wanted)


def test_a_drafter_that_repeats_the_draws_of_its_siblings_is_flagged() -> None:
    first, second = draws(4000, 1), draws(4000, 2)
    probs = DRAWN_FROM.expand(2, 3)
    claims = [
        sibling_claims(probs, [a, b], [-1, -1])
        for a, b in zip(first.tolist(), second.tolist(), strict=True)
    ]
    assert claimed_probs_p_value(second, torch.stack(claims)[:, 1]) == 0


def test_positions_without_a_draft_are_left_out() -> None:
    tokens = draws(1000)
    padded = torch.cat([tokens, torch.full((500,), -1)])
    claims = DRAWN_FROM.expand(1500, 3)
    assert claimed_probs_p_value(padded, claims) == claimed_probs_p_value(tokens, claims[:1000])


def test_a_token_claimed_impossible_is_flagged_at_its_first_draw() -> None:
    claims = torch.tensor([[0.5, 0.5, 0.0]]).expand(30, 3)
    tokens = torch.tensor([0, 1] * 14 + [0, 2])
    assert claimed_probs_p_value(tokens, claims) == 0


@pytest.mark.parametrize("count", [0, 1, 5])
def test_too_few_draws_tell_nothing(count: int) -> None:
    tokens = draws(10)[:count]
    assert claimed_probs_p_value(tokens, torch.full((count, 3), 1 / 3)) == 1


def test_p_value_equals_the_textbook_one() -> None:
    observed = torch.tensor([44, 56])
    p_value = chi_square_p_value(observed, torch.tensor([50.0, 50.0]))
    assert p_value == pytest.approx(0.2301, abs=1e-4)


def test_rare_outcomes_are_pooled() -> None:
    observed = torch.tensor([90, 1, 1, 1, 1, 1, 1, 4])
    expected = torch.tensor([90.0, 1, 1, 1, 1, 1, 1, 4])
    assert chi_square_p_value(observed, expected) == pytest.approx(1)
    assert chi_square_p_value(observed.flip(0), expected) < 1e-9


def test_counts_of_other_outcomes_are_refused() -> None:
    with pytest.raises(ShapeError, match="observed has shape"):
        chi_square_p_value(torch.zeros(3), torch.zeros(4))
    with pytest.raises(ShapeError, match="claimed_probs has shape"):
        claimed_probs_p_value(draws(3), torch.full((2, 3), 1 / 3))
