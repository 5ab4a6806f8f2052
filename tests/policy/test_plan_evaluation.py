"""Intervals that hold the truth as often as they say."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.records import OFF, Plan, Route
from policy.recommend import RecommendOptions, recommend
from policy.types import Interval, Observation
from tests.policy.worlds import (
    END_S,
    draft,
    draft_costs,
    mix,
    observation,
    step_costs,
    survival_of,
    window,
)

HAZARDS = (0.8, 0.7, 0.6)
TRUE_GAIN = (1 + sum(survival_of(HAZARDS))) / 1.3 - 1


def drawn(rng: np.random.Generator, passes: int) -> Observation:
    """Count passes of which each draft token was really tossed."""
    kept = [passes]
    for hazard in HAZARDS:
        kept.append(int(rng.binomial(kept[-1], hazard)))
    survival = [count / passes for count in kept[1:]]
    return observation(draft(3), survival, passes=passes)


def gain_of(seen: Sequence[Observation], seed: int) -> Interval:
    """Each observation fills a window of its own, the last one up to now."""
    costs = step_costs(lambda rows, positions: 0.01 * (1 + 0.1 * (positions - 1)), 1, range(4))
    worlds = [
        window(
            [one],
            costs,
            draft_costs(lambda rows, depth: 0.0, (1,), (3,)),
            [mix({"chat": 1.0})],
            end_s=END_S - 60 * age,
        )
        for age, one in enumerate(seen)
    ]
    (found,) = recommend(
        worlds,
        [Route(name="chat")],
        Plan(default=OFF),
        [draft(3)],
        now_s=END_S,
        generator=np.random.default_rng(seed),
        options=RecommendOptions(min_gain=0.0),
    )
    return found.changes[0].engine_total.minus_one


def test_the_interval_of_a_gain_holds_the_truth_nine_times_in_ten() -> None:
    """100 worlds: a right 90 % interval fails to reach 80 % about once in five hundred times."""
    rng = np.random.default_rng(11)
    gains = [gain_of([drawn(rng, 150)], seed) for seed in range(100)]
    held = sum(gain.low <= TRUE_GAIN <= gain.high for gain in gains)
    assert 80 <= held <= 100
    assert abs(float(np.mean([gain.mean for gain in gains])) - TRUE_GAIN) < 0.03


def test_more_windows_make_the_interval_narrower() -> None:
    rng = np.random.default_rng(3)
    seen = [[drawn(rng, 60) for _ in range(count)] for count in (1, 6, 36)]
    widths = [(gain := gain_of(windows, 0)).high - gain.low for windows in seen]
    assert all(later < 0.8 * earlier for earlier, later in itertools.pairwise(widths))


def test_a_burst_of_passes_in_one_window_cannot_make_sure_what_many_windows_can() -> None:
    rng = np.random.default_rng(5)
    burst = gain_of([drawn(rng, 20_000)], 0)
    spread = gain_of([drawn(rng, 500) for _ in range(40)], 0)
    assert spread.high - spread.low < 0.5 * (burst.high - burst.low)


WORLDS = st.fixed_dictionaries(
    {
        "paces": st.lists(st.floats(1.0, 5.0), min_size=1, max_size=4),
        "slope": st.floats(0.0, 0.2),
        "hazard": st.floats(0.0, 1.0),
        "rows": st.sampled_from((1.0, 3.0, 4.0, 7.0)),
        "share": st.floats(0.05, 0.95),
        "thin": st.integers(1, 40),
    }
)


@given(world=WORLDS, seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_no_speed_over_off_is_above_the_tokens_of_a_pass(
    world: dict[str, object], seed: int
) -> None:
    """Plain steps are timed in slow windows, drafting ones in quick ones: the worst there is."""
    rng = np.random.default_rng(seed)
    rows, share = float(world["rows"]), float(world["share"])  # type: ignore[arg-type]
    held = {"chat": rows} if rows == 1 else {"chat": rows * share, "code": rows * (1 - share)}
    windows = []
    for age, pace in enumerate(sorted(world["paces"])):  # type: ignore[call-overload]
        depths = (0,) if age % 2 else (0, 3)

        def seconds(count: int, positions: int, pace: float = pace) -> float:
            grown = 1 + float(world["slope"]) * (positions - count)  # type: ignore[arg-type]
            return float(0.01 * pace * grown * rng.uniform(0.95, 1.05))

        costs = [
            replace(cost, steps=world["thin"], total_s=cost.total_s * world["thin"] / cost.steps)  # type: ignore[arg-type, operator]
            for count in (1, 2, 4, 8)
            for cost in step_costs(seconds, count, depths)
        ]
        seen = [
            observation(setting, [float(world["hazard"])] * 3, route=name, load=mix(held).load)  # type: ignore[arg-type]
            for name in held
            for setting in (OFF, draft(3))
        ]
        drafts = draft_costs(lambda r, d: 1e-4 * d, (1, 2, 4, 8), (3,))
        windows.append(window(seen, costs, drafts, [mix(held)], end_s=END_S - 60 * age))
    for found in recommend(
        windows,
        [Route(name=name) for name in held],
        Plan(default=OFF),
        [draft(3)],
        now_s=END_S,
        generator=np.random.default_rng(seed),
        options=RecommendOptions(min_gain=0.0, num_draws=50),
    ):
        for change in found.changes:
            assert change.over_off.mean <= change.tokens_per_pass.mean * (1 + 1e-9)
            assert change.over_off.high <= change.tokens_per_pass.high * (1 + 1e-9)
            assert change.over_off.low <= change.over_off.mean <= change.over_off.high
        assert all(point.needed_tokens_per_pass >= 1 for point in found.turning_points)
