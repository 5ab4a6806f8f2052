"""What is learned of passes, drafting and yields, noise and gaps included."""

from __future__ import annotations

import pytest

from collectors.records import Method
from tuner.engine.prices import DraftTimes, Line, PassTimes, Yields


def passes_of(*points: tuple[int, float], times: int = 20) -> PassTimes:
    passes = PassTimes()
    for _ in range(times):
        for positions, seconds in points:
            passes.add(positions, seconds)
    return passes


def test_a_pass_of_which_only_one_size_was_seen_takes_its_time_from_all_positions_alike() -> None:
    assert passes_of((8, 0.4)).slope(8, 4) == pytest.approx(0.05)


def test_nothing_seen_costs_nothing() -> None:
    assert PassTimes().slope(4, 4) == 0
    assert DraftTimes().first(Method.EAGLE, 4) == DraftTimes().next(Method.EAGLE, 4) == 0
    assert Yields().tokens_per_s(4) == 0


def test_a_position_costs_what_the_block_after_it_costs_and_not_what_others_do() -> None:
    """Flat up to 8 positions, dear beyond."""
    passes = passes_of((1, 1.0), (4, 1.0), (8, 1.0), (16, 1.8), (32, 3.4), (64, 6.6))
    assert passes.slope(1, 7) == pytest.approx(0.0, abs=1e-9)
    assert passes.slope(8, 8) == pytest.approx(0.1)


def test_a_step_of_the_table_does_not_hide_the_flat_part_behind_it() -> None:
    passes = passes_of((4, 1.0), (6, 1.2), (8, 1.4), (12, 1.4), (16, 1.4), (32, 3.0))
    assert passes.slope(4, 4) < 0.05


def test_a_table_that_falls_makes_a_position_free_and_never_paid_for() -> None:
    assert passes_of((4, 1.2), (8, 1.0)).slope(4, 4) == 0


def test_one_step_in_which_something_else_ran_hardly_counts() -> None:
    calm, disturbed = (passes_of((4, 1.0), (8, 1.4)) for _ in range(2))
    disturbed.add(8, 100.0)
    assert disturbed.slope(4, 4) < 1.5 * calm.slope(4, 4)


def test_a_deep_draft_among_many_short_ones_is_no_disturbance() -> None:
    times = DraftTimes()
    for _ in range(20):
        for depth in (1,) * 9 + (8,):
            times.add(Method.EAGLE, 1, depth, 0.1 * depth)
    assert times.next(Method.EAGLE, 1) == pytest.approx(0.1)


def test_a_clock_that_stood_still_at_first_is_believed_once_it_runs() -> None:
    line = Line()
    for seconds in [0.0] * 10 + [1.0] * 300:
        line.add(1, seconds)
    assert line.at(1) == pytest.approx(1.0, rel=0.05)


def test_a_machine_that_changes_is_followed() -> None:
    line = Line()
    for slope in (0.1, 0.3):
        for step in range(400):
            line.add(step % 4, 1 + slope * (step % 4))
    assert line.slope == pytest.approx(0.3, rel=0.05)


def test_drafting_is_split_into_its_first_pass_and_the_others() -> None:
    times = DraftTimes()
    for depth in (1, 2, 4) * 10:
        times.add(Method.EAGLE, 4, depth, 0.5 + 0.2 * depth)
    assert times.first(Method.EAGLE, 3) == pytest.approx(0.7)
    assert times.next(Method.EAGLE, 3) == pytest.approx(0.2)


def test_a_load_never_seen_is_judged_by_the_nearest_that_was() -> None:
    yields = Yields()
    yields.add(1, 2, 1.0)
    yields.add(8, 12, 1.5)
    assert yields.tokens_per_s(8) == pytest.approx(8.0)
    assert yields.tokens_per_s(16) == pytest.approx(16.0)
    assert yields.tokens_per_s(2) == pytest.approx(4.0)
