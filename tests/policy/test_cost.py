"""Measured where measured, smoothed in the gaps, silent elsewhere."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from collectors.records import Method
from policy.cost import CostModel
from policy.errors import InvalidInput
from policy.simulate.profiles import Profile, gpu, moe
from policy.types import DraftObservation, StepCost
from tests.policy.worlds import END_S, draft_costs, step_costs, window

DRAFT = Method.DRAFT_MODEL
CLIFF = {1: 1.0, 2: 2.05, 3: 2.96, 4: 1.86, 6: 2.69, 8: 2.32, 12: 2.69, 16: 3.52, 32: 5.22}
"""Relative times of one machine by positions; four cost less than three."""


def cliff_s(rows: int, positions: int) -> float:
    return 0.03 * float(np.interp(positions, list(CLIFF), list(CLIFF.values())))


def linear_s(rows: int, positions: int) -> float:
    return 0.02 + 0.001 * rows + 0.002 * positions


def learned(costs: list[StepCost], drafts: list[DraftObservation] | None = None) -> CostModel:
    return CostModel.empty().updated(window(costs=costs, drafts=drafts or []))


def step_s(model: CostModel, rows: float, positions: float, context: float) -> float | None:
    """One cell of the step table; None without data."""
    value = float(model.step_table_s(rows, np.array([positions]), context)[0])
    return None if math.isnan(value) else value


def draft_s(model: CostModel, method: Method, rows: float, depth: int) -> float | None:
    """One cell of the draft table; None without data."""
    value = float(model.draft_table_s(method, np.array([rows]), np.array([depth]))[0, 0])
    return None if math.isnan(value) else value


def test_an_empty_model_has_no_data() -> None:
    assert step_s(CostModel.empty(), 1, 1, 100) is None
    assert draft_s(CostModel.empty(), DRAFT, 1, 3) is None
    assert draft_s(CostModel.empty(), Method.OFF, 4, 0) == 0


def test_a_measured_time_is_never_smoothed_even_where_more_costs_less() -> None:
    model = learned(step_costs(cliff_s, 1, range(8)))
    shown = [step_s(model, 1, positions, 512) for positions in (1, 3, 4, 8)]
    assert shown == pytest.approx([0.03 * CLIFF[p] for p in (1, 3, 4, 8)])
    assert shown[2] < shown[1]  # type: ignore[operator]


def test_a_shape_between_measured_ones_is_estimated() -> None:
    costs = [c for rows in (1, 2, 4, 8) for c in step_costs(linear_s, rows, (0, 1, 3, 7))]
    model = learned(costs)
    for rows, positions in ((3, 9), (6, 18), (5, 20)):
        assert step_s(model, rows, positions, 512) == pytest.approx(
            linear_s(rows, positions), rel=0.1
        )


def test_the_estimate_errs_as_little_as_it_says() -> None:
    costs = [c for rows in (1, 2, 4, 8) for c in step_costs(linear_s, rows, range(8))]
    model = learned(costs)
    found = step_s(model, 3, 10, 512)
    assert found is not None
    assert abs(found / linear_s(3, 10) - 1) <= 3 * model.step_error_ratio(3, 10, 512)
    assert 0.01 <= model.step_error_ratio(3, 10, 512) <= 0.15


def test_far_from_every_measurement_there_is_no_data() -> None:
    model = learned(step_costs(linear_s, 1, range(4)))
    assert step_s(model, 1, 20, 512) is None
    assert step_s(model, 16, 16, 512) is None
    assert step_s(model, 1, 2, 512 * 100) is None


def test_few_steps_are_no_measurement() -> None:
    once = [replace(cost, steps=4, total_s=0.1) for cost in step_costs(linear_s, 1, (0,))]
    assert step_s(learned(once), 1, 1, 512) is None


def test_longer_contexts_have_their_own_time() -> None:
    def slow(rows: int, positions: int) -> float:
        return 2 * linear_s(rows, positions)

    costs = step_costs(linear_s, 1, range(4), 256) + step_costs(slow, 1, range(4), 4096)
    model = learned(costs)
    assert step_s(model, 1, 2, 300) == pytest.approx(linear_s(1, 2))
    assert step_s(model, 1, 2, 4000) == pytest.approx(slow(1, 2))
    between = step_s(model, 1, 2, 1024)
    assert between is not None
    assert linear_s(1, 2) < between < slow(1, 2)


def test_windows_add_up_as_sums_and_not_as_means() -> None:
    short = replace(step_costs(linear_s, 1, (0,))[0], steps=10, total_s=0.1)
    long = replace(short, steps=30, total_s=0.306)
    paced = replace(step_costs(linear_s, 2, (0,))[0], steps=10_000, total_s=150.0)
    model = CostModel.empty()
    for costs in ([short, paced], [long, paced]):
        model = model.updated(window(costs=costs))
    assert step_s(model, 1, 1, 512) == pytest.approx(0.406 / 40, rel=1e-3)


def test_old_costs_fade() -> None:
    old = replace(step_costs(linear_s, 1, (0,))[0], steps=10, total_s=1.0)
    new = replace(old, total_s=0.2)
    model = CostModel.empty(100.0)
    for seen, end_s in ((old, END_S), (new, END_S + 1000)):
        model = model.updated(window(costs=[seen], end_s=end_s))
    assert step_s(model, 1, 1, 512) == pytest.approx(0.02, rel=0.01)


def test_noisy_steps_have_a_larger_error() -> None:
    calm = step_costs(linear_s, 1, (0,))[0]
    noisy = replace(calm, total_square_s2=calm.total_square_s2 * 30)
    assert learned([calm]).step_error_ratio(1, 1, 512) == pytest.approx(0.15 / math.sqrt(200))
    assert learned([noisy]).step_error_ratio(1, 1, 512) == pytest.approx(math.sqrt(29 / 200))


def test_draft_rounds_are_measured_by_rows_and_depth() -> None:
    def seconds(rows: int, depth: int) -> float:
        return depth * (0.003 + 0.0002 * rows)

    model = learned([], draft_costs(seconds, (1, 4, 8), (1, 2, 4)))
    assert draft_s(model, DRAFT, 4, 2) == pytest.approx(seconds(4, 2))
    assert draft_s(model, DRAFT, 6, 3) == pytest.approx(seconds(6, 3), rel=0.01)
    assert draft_s(model, DRAFT, 6, 9) is None
    assert draft_s(model, DRAFT, 40, 2) is None
    assert draft_s(model, Method.PROMPT_LOOKUP, 4, 2) is None


def test_one_measured_depth_is_scaled_since_draft_passes_are_serial() -> None:
    model = learned([], draft_costs(lambda rows, depth: 0.01, (1,), (2,)))
    assert draft_s(model, DRAFT, 1, 4) == pytest.approx(0.02)


STEP = step_costs(linear_s, 2, (1,))[0]
BAD_STEPS = [
    replace(STEP, rows=0),
    replace(STEP, positions=1),
    replace(STEP, steps=0),
    replace(STEP, context_tokens=-1),
    replace(STEP, total_s=math.nan),
    replace(STEP, total_s=-1.0),
    replace(STEP, total_square_s2=math.inf),
]


@pytest.mark.parametrize("bad", BAD_STEPS)
def test_impossible_steps_are_left_out_by_name(bad: StepCost) -> None:
    model = learned([STEP, bad])
    assert step_s(model, 2, 4, 512) == pytest.approx(linear_s(2, 4))
    assert len(model.ignored) == 1
    assert f"step of {bad.rows} rows" in model.ignored[0]


def test_impossible_draft_rounds_are_left_out_by_name() -> None:
    good = draft_costs(lambda rows, depth: 0.01, (1,), (2,))[0]
    bad = [replace(good, rounds=0), replace(good, depth=0), replace(good, total_s=math.nan)]
    model = learned([], [good, *bad])
    assert draft_s(model, DRAFT, 1, 2) == pytest.approx(0.01)
    assert len(model.ignored) == 3


def test_a_half_life_of_zero_is_named() -> None:
    with pytest.raises(InvalidInput, match="half-life must be above 0 seconds, got 0"):
        CostModel.empty(0)


def test_the_measured_rows_are_listed_for_the_record() -> None:
    model = learned(step_costs(linear_s, 2, (0, 1)) + step_costs(linear_s, 9, (0,)))
    found = model.rows_of(1, 4)
    assert [(rows, positions) for rows, positions, _ in found] == [(2, 2), (2, 4)]
    assert [seconds for _, _, seconds in found] == pytest.approx([linear_s(2, 2), linear_s(2, 4)])


def plain(rows: int, positions: int, seconds: float, steps: int = 50) -> StepCost:
    return StepCost(
        rows=rows,
        positions=positions,
        context_tokens=512 * rows,
        steps=steps,
        total_s=steps * seconds,
        total_square_s2=steps * seconds**2,
    )


def test_a_step_time_is_news_where_it_was_not_expected() -> None:
    model = learned([c for rows in (1, 2, 4, 8) for c in step_costs(linear_s, rows, range(8))])
    expected = linear_s(4, 10)
    shape = replace(plain(4, 10, expected), context_tokens=512)
    assert not model.is_news([shape])
    assert model.is_news([shape, replace(shape, total_s=2 * shape.total_s)])
    assert model.is_news([plain(4, 400, expected)])
    assert CostModel.empty().is_news([shape])


def test_costs_that_cannot_be_are_no_news() -> None:
    assert not CostModel.empty().is_news([plain(4, 2, 0.02), plain(4, 4, math.nan)])
    assert not CostModel.empty().is_news([])


def test_a_plain_step_takes_no_less_than_steps_within_it_and_its_share_of_larger_ones() -> None:
    model = learned([plain(8, 8, 0.02), plain(4, 20, 0.03), plain(30, 90, 0.05)])
    assert model.least_plain_s(25.0, 25 * 512) == pytest.approx(0.03)
    assert model.least_plain_s(10.0, 10 * 512) == pytest.approx(0.02)
    assert model.least_plain_s(7.0, 7 * 512) == pytest.approx(0.9 * 0.02 * 7 / 8)
    assert model.measured_positions.tolist() == [8.0, 20.0, 90.0]


def test_of_steps_with_as_many_positions_the_one_with_more_rows_tells() -> None:
    costs = [plain(20, 43, 0.23), plain(43, 43, 0.3), plain(21, 43, 0.24)]
    assert learned(costs).least_plain_s(43.0, 43 * 512) == pytest.approx(0.3)


def test_the_share_of_a_larger_step_counts_its_context_too() -> None:
    model = learned([replace(plain(40, 40, 0.04), context_tokens=40_000)])
    assert model.least_plain_s(39.0, 40_000) == pytest.approx(0.9 * 0.04 * 39 / 40)
    assert model.least_plain_s(39.0, 10_000) == pytest.approx(0.9 * 0.01)


def test_of_a_plain_step_nothing_is_known_where_nothing_was_timed() -> None:
    assert CostModel.empty().least_plain_s(8.0, 4096) is None


@pytest.mark.parametrize("profile", [gpu(), moe()], ids=["gpu", "moe"])
@pytest.mark.parametrize("sizes", [(2, 5, 9, 17, 40, 129, 145), (16, 128, 144), (33, 250)])
def test_no_plain_step_is_faster_than_the_least_stated(
    profile: Profile, sizes: tuple[int, ...]
) -> None:
    times = profile.step_table_s(1, 0.0)
    model = learned([plain(rows, rows, float(times[rows])) for rows in sizes])
    for rows in range(1, 300):
        least = model.least_plain_s(float(rows), 512 * rows)
        assert least is not None
        assert least <= times[rows] * 1.000001, rows


def test_long_steps_of_nearly_one_size_are_taken_together() -> None:
    thin = [plain(rows, rows, 0.01 * rows, steps=2) for rows in (67, 68, 69)]
    model = learned(thin)
    assert model.measured(68, 68, 68 * 512) is not None
    assert model.least_plain_s(70.0, 70 * 512) == pytest.approx(0.68, rel=0.01)
    assert learned(thin[:2]).measured(68, 68, 68 * 512) is None
