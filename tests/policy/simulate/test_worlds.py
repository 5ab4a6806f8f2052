"""Worlds have the stated parameters and hide nothing random from their seed."""

import numpy as np
import pytest

from policy.errors import InvalidInput
from policy.simulate.worlds import (
    BURST_FACTOR,
    FIRST_ACCEPTANCE,
    LONG_CONTEXT_TOKENS,
    LONG_SHARE,
    USUAL_CONTEXT_TOKENS,
    draw_world,
    workloads_of,
)


def test_the_load_is_the_stated_wave_and_bursts_triple_it() -> None:
    world = draw_world(0, ("W2",))
    wave = np.rint(3 + 40 * ((1 + np.sin(2 * np.pi * np.arange(1200) / 400)) / 2) ** 3)
    ratio = world.rows.sum(axis=1) / wave
    is_burst = ratio > 2
    assert np.all(ratio[~is_burst] == 1)
    assert ratio[is_burst] == pytest.approx(BURST_FACTOR, rel=0.2)
    assert 0.02 < is_burst.mean() < 0.25


def test_routes_change_places_twice_and_none_stays() -> None:
    world = draw_world(1, ("W3",))
    assert world.change_points == (400, 800)
    for moment in world.change_points:
        before, after = world.acceptance[moment - 1], world.acceptance[moment]
        assert sorted(before[:, 1, 0, 0]) == sorted(after[:, 1, 0, 0])
        assert np.all(np.any(before[..., 0] != after[..., 0], axis=(1, 2)))


def test_long_dwell_is_some_33_windows_and_the_usual_one_less_than_a_window() -> None:
    slow = draw_world(2, ("W5",), 6000).easy_share
    flips = np.abs(np.diff(np.rint(slow), axis=0)).sum() / slow.size
    assert flips == pytest.approx(0.03, rel=0.2)
    fast = draw_world(2, ("W1",), 6000).easy_share
    assert np.mean((fast == 0) | (fast == 1)) < 0.2
    assert fast.mean() == pytest.approx(0.5, abs=0.03)


def test_a_new_route_appears_after_a_quarter() -> None:
    rows = draw_world(3, ("W4",)).rows
    assert rows[:300, -1].sum() == 0
    assert np.all(rows[300:, -1] > 0)
    assert np.all(rows.sum(axis=1) == 16)


def test_contexts_grow_to_the_stated_share_of_long_ones() -> None:
    context = draw_world(4, ("W6",)).context_tokens
    assert context[0] == 0
    assert context[-1] == pytest.approx(LONG_SHARE * (LONG_CONTEXT_TOKENS - USUAL_CONTEXT_TOKENS))


def test_survival_is_the_mixture_of_easy_and_hard_steps() -> None:
    world = draw_world(5, ("W1",))
    easy = world.easy_share[7, 0]
    powers = 0.95 ** np.arange(7)
    by_state = [np.cumprod(first * powers) for first in FIRST_ACCEPTANCE[0, 1]]
    assert world.survival(7)[0, 1] == pytest.approx(easy * by_state[0] + (1 - easy) * by_state[1])


def test_equal_seeds_give_equal_worlds_and_others_do_not() -> None:
    one, same, other = (draw_world(seed, ("W3", "W5")) for seed in (6, 6, 7))
    assert np.array_equal(one.easy_share, same.easy_share)
    assert np.array_equal(one.rows, same.rows)
    assert not np.array_equal(one.rows, other.rows)


def test_unknown_workloads_are_named() -> None:
    assert workloads_of("w2 + W5+w2") == ("W2", "W5")
    with pytest.raises(InvalidInput, match="W9"):
        workloads_of("W2+W9")
