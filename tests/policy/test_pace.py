"""Shapes compared at equal pace, and what is not known of a pace said."""

from __future__ import annotations

import numpy as np
import pytest

from policy.cost import CostModel
from policy.pace import BLOCK_S, Pace, PaceLog, steps_at_equal_pace
from policy.types import StepCost, Window
from tests.policy.worlds import END_S

PLAIN, DRAFTED = (4, 4, 512), (4, 20, 512)


def cost(shape: tuple[int, int, int], seconds: float, steps: int = 50) -> StepCost:
    rows, positions, context = shape
    return StepCost(
        rows=rows,
        positions=positions,
        context_tokens=context,
        steps=steps,
        total_s=steps * seconds,
        total_square_s2=steps * seconds**2 * 1.01,
        blocks=steps,
    )


def minute(number: int, *costs: StepCost) -> Window:
    end_s = END_S + 60 * number
    return Window(start_s=end_s - 60, end_s=end_s, step_costs=costs)


def test_a_pace_that_wanders_within_a_window_leaves_the_shapes_as_they_are() -> None:
    """Five times slower half of the time; drafting steps lie mostly in the slow half."""
    rng = np.random.default_rng(0)
    at_s = np.arange(0.0, 60.0, 0.02)
    is_slow = (at_s // 10) % 2 == 1
    shape = np.where(rng.random(len(at_s)) < np.where(is_slow, 0.9, 0.1), 1, 0)
    shape[::50] = 0
    seconds = np.where(shape, 0.013, 0.01) * np.where(is_slow, 5.0, 1.0)
    seconds *= np.exp(0.05 * rng.standard_normal(len(at_s)))
    naive = seconds[shape == 1].mean() / seconds[shape == 0].mean()
    paced = steps_at_equal_pace(shape, seconds, at_s).seconds
    ratio = paced[shape == 1].mean() / paced[shape == 0].mean()
    assert naive > 3
    assert ratio == pytest.approx(1.3, rel=0.03)


def test_a_pause_of_one_step_moves_no_mean() -> None:
    seconds = np.full(400, 0.01)
    seconds[100] = 3.0
    paced = steps_at_equal_pace(np.zeros(400, dtype=np.intp), seconds, np.arange(400) * 0.01)
    assert paced.seconds.mean() == pytest.approx(0.01, rel=0.01)


def test_a_stretch_that_nothing_connects_keeps_its_times() -> None:
    shape = np.repeat([0, 1], 100)
    seconds = np.where(shape, 0.05, 0.01)
    at_s = np.concatenate([np.linspace(0, 0.9 * BLOCK_S, 100), 100 + np.linspace(0, 1, 100)])
    paced = steps_at_equal_pace(shape, seconds, at_s).seconds
    assert paced[shape == 1].mean() / paced[shape == 0].mean() == pytest.approx(5.0, rel=1e-6)


def test_nothing_in_gives_nothing_out() -> None:
    empty = np.zeros(0)
    assert not len(steps_at_equal_pace(empty.astype(np.intp), empty, empty).seconds)


def test_windows_that_share_a_shape_tell_their_pace() -> None:
    model = CostModel.empty()
    for number in range(6):
        slow = 4.0 if number % 2 else 1.0
        model = model.updated(
            minute(number, cost(PLAIN, 0.01 * slow, 10), cost(DRAFTED, 0.012 * slow))
        )
    plain, drafted = (model.measured(*shape) for shape in (PLAIN, DRAFTED))
    assert plain is not None
    assert drafted is not None
    assert drafted.mean_s / plain.mean_s == pytest.approx(1.2, rel=0.02)
    assert model.paces.spread_ratio == pytest.approx(4.0, rel=0.1)
    assert drafted.pace_error < 0.03


def test_a_shape_timed_apart_from_all_others_may_be_wrong_by_as_much_as_the_pace_wanders() -> None:
    model = CostModel.empty()
    for number, slow in enumerate((1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 1.0, 3.0, 3.0)):
        model = model.updated(minute(number, cost(PLAIN, 0.01 * slow)))
    model = model.updated(minute(10, cost(DRAFTED, 0.036)))
    assert model.pace_error_ratio(4, 20, 512) > 0.3
    assert model.pace_error_ratio(4, 4, 512) < 0.05


def test_a_quiet_machine_adds_next_to_nothing() -> None:
    rng = np.random.default_rng(1)
    model = CostModel.empty()
    for number in range(30):
        seconds = 0.01 * (1 + 0.003 * float(rng.standard_normal()))
        model = model.updated(minute(number, cost(PLAIN, seconds), cost(DRAFTED, 1.2 * seconds)))
    assert model.paces.spread_ratio < 1.02
    assert model.pace_error_ratio(4, 20, 512) < 0.005


def test_the_next_pace_is_like_what_came_after_such_windows() -> None:
    paces = PaceLog()
    for number in range(60):
        paces = paces.with_window(Pace(log=1.0 if (number // 20) % 2 else 0.0, variance=0.0))
    drawn = paces.next_draws(np.random.default_rng(0), 2000)
    assert np.mean(np.abs(drawn) < 0.1) > 0.85
    assert np.mean(np.abs(drawn - 1.0) < 0.1) > 0.02


def test_a_larger_step_far_quicker_than_a_smaller_one_tells_of_the_pace() -> None:
    """Plain steps were timed in slow windows only, the first drafting ones in a quick one."""
    model = CostModel.empty()
    for number in range(4):
        model = model.updated(minute(number, cost(PLAIN, 0.05)))
    model = model.updated(minute(4, cost(DRAFTED, 0.012)))
    assert model.paces.paces[-1].log == pytest.approx(np.log(0.012 / 0.05))
    plain, drafted = (model.measured(*shape) for shape in (PLAIN, DRAFTED))
    assert plain is not None
    assert drafted is not None
    assert drafted.mean_s >= plain.mean_s * (1 - 1e-9)
    assert model.pace_error_ratio(4, 20, 512) >= 0.1


def test_one_slow_step_is_no_slow_window() -> None:
    model = CostModel.empty()
    for number in range(10):
        model = model.updated(minute(number, cost(PLAIN, 0.01), cost(DRAFTED, 0.012)))
    model = model.updated(minute(10, cost(PLAIN, 0.1, steps=1), cost(DRAFTED, 0.012)))
    assert model.paces.spread_ratio < 1.1
