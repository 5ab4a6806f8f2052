"""One step serves all: sums of positions, one drafting a method, limits."""

from __future__ import annotations

import numpy as np
import pytest

from collectors.records import OFF, LoadLevel
from policy.goodput import NO_DATA_S, Batch, limited, numbered, rates, step_seconds, worth
from tests.policy.worlds import draft, lookup

ARMS = (OFF, draft(1), draft(3), lookup(3))
SCENE = np.array([0])


def batch(limit_s: float = np.inf) -> Batch:
    """Two routes with 2 and 1 rows; 10 ms and 1 ms a position; 4 ms a draft pass."""
    rows = np.array([[2.0, 1.0]])
    depth = np.array([arm.k for arm in ARMS])
    yields = np.array([1.0, 1.8, 2.5, 1.5])
    shape = (1, 2, 4)
    drafting = np.zeros((1, 3, 3, 4))
    drafting[0, 1] = 0.004 * np.arange(4)
    drafting[0, 2] = 0.0001
    return Batch(
        loads=(LoadLevel(low=3, high=4),),
        routes=(("a", "b"),),
        arms=ARMS,
        method=np.array([0, 1, 1, 2]),
        depth=depth,
        family=np.array([0, 1, 1, 2]),
        allowed=np.ones(shape, dtype=bool),
        rows=rows,
        tokens=rows[:, :, None] * yields,
        positions=rows[:, :, None] * (1 + depth),
        own_s=np.zeros(shape),
        limit_s=np.full(shape, limit_s),
        step_s=np.array([[0.010 + 0.001 * positions for positions in range(3, 14)]]),
        step_from=np.array([3.0]),
        step_per_position=np.array([1.0]),
        draft_s=drafting,
        draft_per_row=np.array([1.0]),
    )


def seconds(*choice: int) -> float:
    return float(step_seconds(batch(), SCENE, np.array([choice]))[0])


def test_the_step_time_follows_the_sum_of_positions() -> None:
    assert seconds(0, 0) == pytest.approx(0.010 + 0.003)
    assert seconds(3, 0) == pytest.approx(0.010 + 0.009 + 0.0001)


def test_a_method_drafts_once_for_all_its_rows_and_as_deep_as_the_deepest() -> None:
    assert seconds(1, 2) == pytest.approx(0.010 + 0.008 + 3 * 0.004)


def test_the_drafting_of_two_methods_adds_up() -> None:
    assert seconds(1, 3) == pytest.approx(0.010 + 0.008 + 0.004 + 0.0001)


def test_goodput_is_tokens_over_the_shared_step() -> None:
    found = rates(batch(), SCENE, np.array([[2, 0]]))
    expected = 0.010 + 0.009 + 0.012
    assert found.goodput[0] == pytest.approx((5 + 1) / expected)
    assert found.by_route[0] == pytest.approx([5 / expected, 1 / expected])


def test_a_method_that_is_in_part_of_the_steps_costs_that_part() -> None:
    half = batch()
    half.rows[0, 1] = 0.5
    drafting = step_seconds(half, SCENE, np.array([[0, 2]])) - step_seconds(
        half, SCENE, np.array([[0, 3]])
    )
    assert drafting[0] == pytest.approx(0.5 * (0.012 - 0.0001))


def test_tokens_beyond_their_limit_count_for_less() -> None:
    found = rates(batch(limit_s=0.0065), SCENE, np.array([[0, 0]]))
    assert found.goodput[0] == pytest.approx(3 / 0.013 * 0.25)
    assert worth(np.array([1.0, np.inf]), np.array([0.5])) == pytest.approx([1, 1])


def test_a_plan_that_keeps_its_limits_comes_before_any_that_does_not() -> None:
    scores = limited(np.array([1.0, 900.0, 901.0]), np.ones(3), np.array([1.0, 1.01, 5.0]))
    assert scores[0] > scores[1] > scores[2] > 0


def test_unknown_times_stay_numbers() -> None:
    blind = batch()
    blind.step_s[:] = NO_DATA_S
    found = rates(blind, SCENE, np.array([[2, 2]]))
    assert 0 < found.goodput[0] < 1e-20


def test_equal_values_get_equal_numbers_in_order() -> None:
    assert numbered(["off", "b", "off", "a", "b"]).tolist() == [0, 1, 0, 2, 1]
