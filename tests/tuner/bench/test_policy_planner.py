"""The service that the planner is timed on is one, and its plans are good ones."""

import numpy as np

from policy.goodput import scores_of
from policy.planner import best_plan
from tuner.bench.policy_planner import large_batch, planner_time


def test_the_planner_is_timed_on_fifty_routes_at_eight_levels_with_twelve_arms() -> None:
    batch = large_batch(np.inf)
    assert batch.tokens.shape == (8, 50, 12)
    assert not batch.has_limits
    assert large_batch(1.5).has_limits
    assert (np.diff(batch.step_s, axis=1) >= 0).all()


def test_what_it_is_timed_on_is_worth_planning() -> None:
    """More than one arm is used at most levels, and the plan gives more than any arm for all."""
    batch, scenes = large_batch(np.inf), np.arange(8)
    plan = best_plan(batch, np.zeros((8, 50), dtype=np.intp))
    found = scores_of(batch, scenes, plan)
    for arm in range(len(batch.arms)):
        assert (found >= scores_of(batch, scenes, np.full_like(plan, arm)) * (1 - 1e-12)).all()
    assert sum(len(np.unique(level)) > 1 for level in plan) >= 3


def test_its_times_are_cpu_seconds_in_order() -> None:
    found = planner_time(num_repeats=5)
    assert 0 < found.p50_s <= found.p99_s
    assert found.limited_p99_s > 0
    assert "50 routes at 8 levels with 12 arms" in found.sentence
