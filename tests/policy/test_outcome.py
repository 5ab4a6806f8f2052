"""Outcomes in the units of the prediction, when they count as missed, and what trust follows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from collectors.records import OFF, Plan
from policy.decode_sum import DecodeSum
from policy.outcome import (
    MIN_PAIRS,
    Basis,
    Outcome,
    outcomes,
    paired_over_off,
    telling,
)
from policy.pairing import StepPairing
from policy.realised import Ran, realised
from policy.trust import MIN_OUTCOMES, error_scale
from policy.types import Interval, LoadMix, Observation, Window
from tests.fixtures.facts import DRAFT_3
from tests.fixtures.said import LOAD_1, LOAD_2, PLAIN, change, plan, said

DRAFTING = plan(("chat", LOAD_1, DRAFT_3))


def window(number: int, rate: float, pairs: tuple[StepPairing, ...] = ()) -> Window:
    """A minute of chat alone at 1.8 tokens a pass."""
    start_s = 60.0 * number
    seen = Observation(
        route="chat",
        setting=DRAFT_3,
        load=LOAD_1,
        start_s=start_s,
        end_s=start_s + 60,
        passes=1000,
        verify_passes=1000,
        drafted=3000,
        accepted=800 + (-1) ** number * 10,
        tokens=1800,
    )
    mix = LoadMix(
        load=LOAD_1,
        steps=100,
        rows_by_route={"chat": 1.0},
        context_tokens=100.0,
        tokens=round(10 * rate),
        busy_s=10.0,
    )
    counted = DecodeSum(load=LOAD_1, route="chat", steps=100, tokens=round(10 * rate), busy_s=10.0)
    return Window(
        start_s=start_s,
        end_s=start_s + 60,
        observations=(seen,),
        mixes=(mix,),
        decode_sums=(counted,),
        pairings=pairs,
    )


def paired(ratio: float, count: int = 10) -> tuple[StepPairing, ...]:
    return (
        StepPairing(
            load=LOAD_1,
            pairs=count,
            sum_log_ratio=count * math.log(ratio),
            sum_square_log_ratio=count * math.log(ratio) ** 2,
            drafting_tokens=0,
            drafting_steps=0,
        ),
    )


def ran(numbers: Iterable[int], brought: Plan, rate: float, ratios: tuple[float, ...] = ()):
    return [
        Ran(
            window=window(n, rate, paired(ratios[n % len(ratios)]) if ratios else ()),
            plan=brought,
        )
        for n in numbers
    ]


def measured(windows: list[Ran], since: int = 20) -> tuple[Outcome, ...]:
    one = said()
    return outcomes(one, realised(one, windows, 60.0 * since), windows)


def test_paired_steps_give_the_speed_over_off_in_place():
    """Steps that take 1.2 times as long and bring 1.8 tokens: 1.5 times the speed."""
    (found,) = measured(ran(range(20, 32), DRAFTING, 70.0, (1.19, 1.21)))

    assert (found.basis, found.load) == (Basis.PAIRED, LOAD_1)
    assert found.predicted == change().over_off
    assert found.realised.mean == pytest.approx(1.8 / 1.2, rel=0.01)
    assert found.realised.low < 1.5 < found.realised.high
    assert found.realised.high <= 1.6
    assert not found.is_missed


def test_without_pairs_the_engines_total_before_and_after_is_named_as_such():
    (found,) = measured([*ran(range(20), PLAIN, 50.0), *ran(range(20, 40), DRAFTING, 75.0)])

    assert found.basis is Basis.BEFORE_AND_AFTER
    assert found.predicted == change().engine_total
    assert found.realised.mean == pytest.approx(1.5)
    assert str(found) == (
        "engine total 1.50x (1.50 to 1.50) at load 1 by before and after, predicted 1.40x "
        "(1.30 to 1.50)"
    )


def test_where_nothing_ran_before_and_no_pairs_did_there_is_no_outcome():
    assert measured(ran(range(20, 40), DRAFTING, 75.0)) == ()


@pytest.mark.parametrize("count", [0, MIN_PAIRS // 12])
def test_too_few_pairs_are_no_ratio(count: int):
    windows = [window(n, 70.0, paired(1.2, count)) for n in range(10)]

    assert paired_over_off("chat", change(), windows) is None


def test_pairs_of_another_load_level_do_not_count():
    other = tuple(replace(one, load=LOAD_2) for one in paired(1.2, 100))

    assert paired_over_off("chat", change(), [window(n, 70.0, other) for n in range(9)]) is None


def test_reading_prompts_takes_as_long_for_each_token_whatever_drafts():
    """A third of the engine's time reads prompts: what drafting saves of a step counts for less."""
    seen = [window(number, 70.0, paired(1.2)) for number in range(9)]
    busy = [
        replace(one, mixes=tuple(replace(mix, busy_s=15.0) for mix in one.mixes)) for one in seen
    ]
    alone = paired_over_off("chat", change(), seen)
    beside = paired_over_off("chat", change(), busy)

    assert alone is not None
    assert beside is not None
    assert alone.mean == pytest.approx(1.8 / 1.2, rel=0.01)
    assert beside.mean == pytest.approx(1.8 / (1.5 / (1 / 1.2 + 0.5 / 1.8)), rel=0.01)


def outcome(mean: float, spread: float = 0.02, basis: Basis = Basis.PAIRED) -> Outcome:
    return Outcome(
        load=LOAD_1,
        setting=DRAFT_3,
        basis=basis,
        predicted=Interval(low=1.3, mean=1.4, high=1.5),
        realised=Interval(low=mean - spread, mean=mean, high=mean + spread),
    )


@pytest.mark.parametrize(
    ("mean", "is_missed"), [(1.4, False), (1.29, False), (1.27, True), (1.51, False), (1.6, True)]
)
def test_a_prediction_is_missed_where_both_intervals_have_nothing_in_common(
    mean: float, is_missed: bool
):
    assert outcome(mean).is_missed == is_missed


def test_the_headline_tells_of_a_miss_before_anything_else():
    kept, missed = outcome(1.4), replace(outcome(1.0, basis=Basis.BEFORE_AND_AFTER), load=LOAD_2)

    assert telling((kept, missed)) == missed
    assert telling((kept, replace(missed, realised=missed.predicted))) == kept
    assert telling(()) is None


def test_predictions_that_held_keep_their_intervals():
    assert error_scale([outcome(mean) for mean in (1.36, 1.4, 1.44, 1.48)]) == 1.0


def test_fewer_outcomes_than_three_say_nothing():
    assert error_scale([outcome(0.7)] * (MIN_OUTCOMES - 1)) == 1.0


def test_predictions_that_were_missed_are_widened_until_nine_in_ten_would_have_held():
    record = [outcome(mean) for mean in (1.0, 1.1, 1.4, 1.7, 1.9, 0.9, 1.2, 1.6, 1.3, 1.5)]

    scale = error_scale(record)

    half = scale * math.log(1.5 / 1.3) / 2
    inside = [
        abs(math.log(one.realised.mean / 1.4)) - math.log(one.realised.high / one.realised.low) / 2
        <= half
        for one in record
    ]
    assert scale > 2
    assert sum(inside) == 9


def test_what_the_measurement_is_unsure_of_is_not_held_against_the_prediction():
    assert error_scale([outcome(1.1, spread=0.4)] * 5) == 1.0


def test_a_figure_that_is_not_above_nothing_is_left_out():
    bad = replace(outcome(1.4), predicted=Interval(low=0.0, mean=0.1, high=0.2))

    assert error_scale([bad] * 5) == 1.0
    assert bad.setting != OFF
