"""The published tables, digit for digit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import InvalidInput
from policy.theory import (
    best_k,
    best_k_of_survival,
    break_even_cost,
    expected_tokens,
    speedup,
    tokens_from_survival,
)

LENGTHS = (1, 2, 3, 4, 5, 6, 8)
CHEAP = {
    0.5: ((1.43, 1.59, 1.63, 1.61, 1.57, 1.53, 1.43), (3, 1.63)),
    0.6: ((1.52, 1.78, 1.89, 1.92, 1.91, 1.87, 1.77), (4, 1.92)),
    0.7: ((1.62, 1.99, 2.20, 2.31, 2.35, 2.35, 2.28), (6, 2.35)),
    0.8: ((1.71, 2.22, 2.57, 2.80, 2.95, 3.04, 3.09), (8, 3.09)),
    0.9: ((1.81, 2.46, 2.99, 3.41, 3.75, 4.01, 4.38), (13, 4.67)),
}
DEAR = {
    0.5: ((1.25, 1.25, 1.17, 1.08, 0.98, 0.90, 0.77), (1, 1.25)),
    0.6: ((1.33, 1.40, 1.36, 1.28, 1.19, 1.10, 0.95), (2, 1.40)),
    0.7: ((1.42, 1.56, 1.58, 1.54, 1.47, 1.39, 1.23), (3, 1.58)),
    0.8: ((1.50, 1.74, 1.85, 1.87, 1.84, 1.80, 1.66), (4, 1.87)),
    0.9: ((1.58, 1.94, 2.15, 2.28, 2.34, 2.37, 2.36), (7, 2.37)),
}
ROWS = [(0.05, alpha, *row) for alpha, row in CHEAP.items()]
ROWS += [(0.2, alpha, *row) for alpha, row in DEAR.items()]


@pytest.mark.parametrize(("c", "alpha", "speedups", "best"), ROWS)
def test_the_speedup_table_is_reproduced(
    c: float, alpha: float, speedups: tuple[float, ...], best: tuple[int, float]
) -> None:
    shown = tuple(speedup(alpha, k, c) for k in LENGTHS)
    assert shown == pytest.approx(speedups, abs=0.00501)
    k, value = best_k(alpha, c)
    assert k == best[0]
    assert value == pytest.approx(best[1], abs=0.00501)


@pytest.mark.parametrize(
    ("k", "measured"),
    [(1, 1.785), (2, 2.393), (3, 2.878), (4, 3.242), (6, 3.760), (8, 4.054)],
)
def test_the_toy_language_follows_the_formula(k: int, measured: float) -> None:
    assert expected_tokens(0.78, k) == pytest.approx(measured, rel=0.01)


def test_the_limit_of_long_drafts_is_one_over_one_less_alpha() -> None:
    assert expected_tokens(0.8, 200) == pytest.approx(5)


def test_certain_acceptance_yields_every_draft_and_the_bonus() -> None:
    assert expected_tokens(1.0, 7) == 8


def test_the_break_even_cost_leaves_no_gain() -> None:
    assert speedup(0.7, 4, break_even_cost(0.7, 4)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("cost", "k", "gain"), [(0.1, 3, 1.923), (0.2, 2, 1.643), (0.4, 1, 1.286), (1.0, 0, 1.0)]
)
def test_the_best_length_follows_the_cost_of_a_token(cost: float, k: int, gain: float) -> None:
    """Field case F17."""
    chosen, value = best_k_of_survival((0.8, 0.5, 0.2), cost)
    assert chosen == k
    assert value == pytest.approx(gain, abs=6e-4)


def test_survival_adds_up_to_tokens_per_step() -> None:
    """Field case F17."""
    shown = [tokens_from_survival((0.8, 0.5, 0.2), k) for k in range(4)]
    assert shown == pytest.approx([1, 1.8, 2.3, 2.5])
    assert tokens_from_survival((0.8, 0.5, 0.2), 2) / 1.2 == pytest.approx(1.917, abs=5e-4)


@given(alpha=st.floats(0, 1), k=st.integers(0, 64))
def test_tokens_lie_between_one_and_the_whole_block(alpha: float, k: int) -> None:
    assert 1 <= expected_tokens(alpha, k) <= k + 1


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan, math.inf])
def test_an_impossible_alpha_is_named(alpha: float) -> None:
    with pytest.raises(InvalidInput, match=f"alpha must be 0 to 1, got {alpha}"):
        expected_tokens(alpha, 1)


def test_other_impossible_arguments_are_named() -> None:
    with pytest.raises(InvalidInput, match="k must be 0 or more, got -1"):
        expected_tokens(0.5, -1)
    with pytest.raises(InvalidInput, match="0 or more, got nan"):
        speedup(0.5, 1, math.nan)
    with pytest.raises(InvalidInput, match="max_k must be 1 or more, got 0"):
        best_k(0.5, 0.1, max_k=0)
    with pytest.raises(InvalidInput, match="k must be 1 or more, got 0"):
        break_even_cost(0.5, 0)
    with pytest.raises(InvalidInput, match="k must be 0 to 2"):
        tokens_from_survival((0.5, 0.4), 3)
    with pytest.raises(InvalidInput, match="survival must fall"):
        tokens_from_survival((0.5, 0.6), 2)
