from __future__ import annotations

import math

import numpy as np
import pytest

from collectors.records import LOAD_LEVELS, load_level_of
from policy.errors import InvalidInput
from policy.gate import (
    MAX_NEEDED,
    MIN_CLUSTERS,
    PairSample,
    SpeedVerdict,
    conversations,
    gate_verdict,
    is_narrow,
    route_speed,
    route_speeds,
    unmeasured_loads,
)

ONE = load_level_of(1)


def samples(logs: list[float], route: str = "chat", rows: int = 1) -> list[PairSample]:
    return [
        PairSample(route=route, load=load_level_of(rows), log_ratio=value, cluster=str(place))
        for place, value in enumerate(logs)
    ]


def steady(count: int, middle: float) -> list[PairSample]:
    return samples([middle + (0.01 if place % 2 else -0.01) for place in range(count)])


@pytest.mark.parametrize("count", [0, 1, 2, MIN_CLUSTERS - 1])
def test_too_few_pairs_are_no_ratio(count: int):
    found = route_speed("chat", ONE, steady(count, -0.7), precision=0.1)

    assert found.time_ratio is None
    assert found.speedup is None
    assert found.verdict is SpeedVerdict.TOO_FEW
    assert found.sentence == f"too few pairs on chat at load 1 ({count} of 8 needed for +-10%)"
    assert found.missing_pairs == MIN_CLUSTERS - count


def test_a_narrow_interval_below_one_in_time_is_faster():
    found = route_speed("chat", ONE, steady(8, math.log(0.5)), precision=0.1)

    assert found.verdict is SpeedVerdict.FASTER
    assert found.time_ratio is not None
    assert found.speedup is not None
    assert found.time_ratio.mean == pytest.approx(0.5)
    assert found.speedup.mean == pytest.approx(2.0)
    assert found.speedup.low <= found.speedup.mean <= found.speedup.high
    assert is_narrow(found)
    assert found.sentence.startswith("faster on chat at load 1: 2.00x (")


def test_slower_and_no_difference_are_told_apart():
    slower = route_speed("chat", ONE, steady(8, 0.3), precision=0.1)
    same = route_speed("chat", ONE, steady(8, 0.0), precision=0.1)

    assert (slower.verdict, same.verdict) == (SpeedVerdict.SLOWER, SpeedVerdict.NO_DIFFERENCE)


def test_a_wide_interval_that_holds_one_says_how_many_pairs_are_missing():
    wide = samples([0.6, -0.5, 0.4, -0.6, 0.5, -0.4, 0.3, -0.2, 0.1, -0.1])

    found = route_speed("chat", ONE, wide, precision=0.1)

    assert found.verdict is SpeedVerdict.TOO_FEW
    assert found.missing_pairs == found.needed_pairs - 10 > 20


def test_a_wide_interval_on_one_side_of_one_tells_the_direction_but_asks_for_more():
    found = route_speed(
        "chat", ONE, samples([-0.6, -1.0, -0.4, -1.2, -0.7, -0.9, -0.5, -1.1]), precision=0.05
    )

    assert found.verdict is SpeedVerdict.FASTER
    assert not is_narrow(found)


def test_turns_of_one_conversation_count_as_one():
    talk = [
        PairSample(route="chat", load=ONE, log_ratio=-0.7, cluster="one talk") for _ in range(40)
    ]

    found = route_speed("chat", ONE, talk, precision=0.1)

    assert (found.pairs, found.clusters, found.verdict) == (40, 1, SpeedVerdict.TOO_FEW)


def test_each_route_and_load_level_is_judged_alone():
    found = route_speeds(
        [*steady(9, -0.5), *samples([0.0] * 3, "story"), *samples([0.2] * 8, "chat", rows=4)],
        precision=0.1,
    )

    assert [(one.route, one.load.label, one.pairs) for one in found] == [
        ("chat", "1", 9),
        ("chat", "3-4", 8),
        ("story", "1", 3),
    ]
    assert [one.verdict for one in found] == [
        SpeedVerdict.FASTER,
        SpeedVerdict.SLOWER,
        SpeedVerdict.TOO_FEW,
    ]


def test_nine_in_ten_intervals_hold_the_truth_even_if_drawing_stops_once_they_are_narrow():
    rng = np.random.default_rng(0)
    given, held = 0, 0
    for _ in range(1_000):
        logs = list(0.1 + 0.2 * rng.standard_normal(60))
        for count in range(MIN_CLUSTERS, 61):
            found = route_speed("chat", ONE, samples(logs[:count]), precision=0.1)
            if is_narrow(found):
                break
        if found.time_ratio is not None:
            given += 1
            held += found.time_ratio.low <= math.exp(0.1) <= found.time_ratio.high

    assert given > 950
    assert 0.83 <= held / given <= 0.95


def test_what_was_asked_for_is_enough_on_average():
    rng = np.random.default_rng(1)
    needed = route_speed(
        "chat", ONE, samples(list(0.3 * rng.standard_normal(400))), precision=0.1
    ).needed_pairs
    halves = []
    for _ in range(200):
        found = route_speed(
            "chat", ONE, samples(list(1.0 + 0.3 * rng.standard_normal(needed))), precision=0.1
        )
        assert found.time_ratio is not None
        halves.append(math.log(found.time_ratio.high / found.time_ratio.mean))

    assert np.median(halves) == pytest.approx(0.1, abs=0.03)


def test_a_precision_out_of_reach_asks_for_no_more_than_a_bound():
    found = route_speed("chat", ONE, samples([5.0, -5.0] * 5), precision=1e-4)

    assert found.needed_pairs == MAX_NEEDED


@pytest.mark.parametrize("precision", [0.0, -1.0, math.inf, math.nan])
def test_a_precision_that_means_nothing_is_refused(precision: float):
    with pytest.raises(InvalidInput, match="precision must be above 0"):
        route_speed("chat", ONE, [], precision=precision)


def test_a_pair_without_a_ratio_is_refused():
    with pytest.raises(InvalidInput, match="log ratio must be a number"):
        route_speed("chat", ONE, samples([math.inf, 0.0]), precision=0.1)


def test_the_gate_opens_on_equal_outputs_and_speed_that_is_not_slower():
    faster = route_speed("chat", ONE, steady(8, -0.3), precision=0.1)
    slower = route_speed("chat", ONE, steady(8, 0.3), precision=0.1)
    few = route_speed("chat", ONE, steady(2, -0.3), precision=0.1)

    passing = gate_verdict(outputs_pass=True, outputs_sentence="pass: all equal", speed=faster)
    assert passing.is_passing
    assert passing.reasons == ("pass: all equal", faster.sentence)
    for speed in (slower, few):
        shut = gate_verdict(outputs_pass=True, outputs_sentence="pass: all equal", speed=speed)
        assert (shut.is_passing, shut.outputs_pass) == (False, True)
        assert shut.reasons == (speed.sentence,)
    apart = gate_verdict(outputs_pass=False, outputs_sentence="fail: 2 differ", speed=faster)
    assert apart.reasons == ("fail: 2 differ",)
    none = gate_verdict(outputs_pass=True, outputs_sentence="pass", speed=None)
    assert none.reasons == ("no pair of this route was replayed",)


def test_speed_at_other_load_levels_is_not_measured():
    assert unmeasured_loads(LOAD_LEVELS[:3], ONE) == LOAD_LEVELS[1:3]
    assert unmeasured_loads(LOAD_LEVELS[:1], None) == LOAD_LEVELS[:1]


def test_prompts_that_continue_one_another_are_one_conversation():
    prompts = {"a": "Hi.", "b": "Hi. Yes?", "c": "Hi. Yes? So.", "d": "Ho.", "e": "Ho.", "f": ""}

    assert conversations(prompts) == {
        "a": "a",
        "b": "a",
        "c": "a",
        "d": "d",
        "e": "e",
        "f": "f",
    }
