"""A pace lies on the wall clock, is the same for all, and stretches each step at its own time."""

import numpy as np
import pytest

from policy.simulate.engine import STEP_NOISE, Engine, lookup, model
from policy.simulate.pace import DWELL_S, MAX_FACTOR, Pace, draw_pace
from policy.simulate.peers.base import for_all, for_each
from policy.simulate.peers.oracles import PerRouteOracle
from policy.simulate.profiles import PROFILES, profile_named
from policy.simulate.worlds import draw_world

MIXED = [lookup(7), model(3), lookup(2), model(1)]
SEEDS = range(40)


def paces() -> list[Pace]:
    return [draw_pace(np.random.default_rng(seed), 1200, 1.0) for seed in SEEDS]


def engine_of(pace: str, profile: str = "gpu", seed: int = 3) -> Engine:
    return Engine(
        world=draw_world(seed, ("W1", *((pace,) if pace else ())), 120),
        profile=profile_named(profile),
    )


def test_factors_fill_the_stated_range_and_both_states_take_about_half_the_time() -> None:
    drawn = paces()
    factors = np.array([pace.factor for pace in drawn])
    assert factors.min() >= 1
    assert factors.max() <= MAX_FACTOR
    assert factors.mean() == pytest.approx((1 + MAX_FACTOR) / 2, rel=0.15)
    slow = np.mean([pace.slow_share.mean() for pace in drawn])
    assert slow == pytest.approx(0.5, abs=0.05)


def test_a_state_lasts_for_5_to_60_seconds() -> None:
    for pace in paces():
        is_slow = pace.slow_share > 0.5
        lengths = np.diff(np.flatnonzero(np.diff(is_slow.astype(int)) != 0))
        assert lengths.min() >= DWELL_S[0] - 1
        assert lengths.max() <= DWELL_S[1] + 1
    mixed = np.mean([(pace.slow_share * (1 - pace.slow_share) > 1e-6).mean() for pace in paces()])
    assert mixed == pytest.approx(1 / np.mean(DWELL_S), rel=0.15)


def test_a_world_with_a_pace_is_the_same_world_otherwise() -> None:
    plain, paced = draw_world(5, ("W3", "W5")), draw_world(5, ("W3", "W5", "W7"))
    assert np.array_equal(plain.rows, paced.rows)
    assert np.array_equal(plain.easy_share, paced.easy_share)
    assert np.array_equal(plain.acceptance, paced.acceptance)
    assert plain.pace.factor == 1.0
    assert paced.pace.factor > 1.0


@pytest.mark.parametrize("profile", PROFILES)
def test_the_pace_scales_what_every_plan_yields_alike(profile: str) -> None:
    plain, paced = engine_of("", profile), engine_of("W7", profile)
    oracle = PerRouteOracle(paced)
    for number in range(0, 120, 9):
        turn = plain.turn(number)
        best = PerRouteOracle(plain).choose(turn)
        assert np.array_equal(oracle.choose(turn).depth, best.depth)
        for choice in (for_all(model(0), turn), for_each(MIXED, turn), best):
            speed = paced.goodput(turn, choice) / plain.goodput(turn, choice)
            assert speed == pytest.approx(paced.world.pace.speed(number))
            assert 1 / MAX_FACTOR <= speed <= 1


def test_a_window_that_sees_both_states_holds_steps_of_both() -> None:
    """A quarter of a second slow by 3: per 3 quick-state steps in it, 9 outside it."""
    share, factor = 0.25, 3.0
    pace = Pace(factor=factor, slow_share=np.array([share]))
    slow_steps, quick_steps = share / factor, 1 - share
    steps = slow_steps + quick_steps
    mean = (slow_steps * factor + quick_steps) / steps
    mean_square = (slow_steps * factor**2 + quick_steps) / steps
    assert pace.speed(0) == pytest.approx(steps)
    assert 1 / pace.speed(0) == pytest.approx(mean)
    assert pace.mean_square(0) == pytest.approx(mean_square)


def test_counters_show_the_pace_in_target_passes_and_drafting_alike() -> None:
    plain, paced = engine_of("", seed=6), engine_of("W7", seed=6)
    pace = paced.world.pace
    for number in range(0, 120, 7):
        turn = plain.turn(number)
        choice = for_each(MIXED, turn)
        quick, seen = (
            engine.counts(turn, choice, np.random.default_rng(number)) for engine in (plain, paced)
        )
        speed = pace.speed(number)
        assert seen.steps == pytest.approx(speed * quick.steps, abs=1)
        assert seen.target_s == pytest.approx(quick.target_s / speed, rel=0.2)
        spread = seen.target_square_s2 / seen.target_s**2 / (1 + STEP_NOISE**2)
        assert spread == pytest.approx(pace.mean_square(number) * speed**2)
        assert seen.draft_s.sum() / seen.target_s == pytest.approx(
            quick.draft_s.sum() / quick.target_s, rel=0.2
        )
        assert seen.busy_s == pytest.approx(quick.busy_s, abs=0.25)
