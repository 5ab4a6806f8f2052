from dataclasses import replace
from datetime import UTC, datetime

import pytest

from collectors.records import OFF, load_level_of
from policy.types import Interval
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import change, plan, said
from tests.tuner.bench.service.rows import block
from tuner.bench.service.blocks import Block, Decoding, Level
from tuner.bench.service.conditions import Condition
from tuner.bench.service.predictions import (
    Outcome,
    Promise,
    coverage,
    median_error,
    num_impossible,
    outcomes_of,
    promises_of,
)
from tuner.store.recommendations import State, StoredRecommendation

LOAD_1, LOAD_4 = load_level_of(1), load_level_of(4)
PREDICTED = Interval(low=1.2, mean=1.4, high=1.6)


def stored(
    number: int, state: State, *changes: object, route: str = "chat"
) -> StoredRecommendation:
    at = datetime(2026, 11, 30, tzinfo=UTC)
    return StoredRecommendation(
        id=number,
        engine="bundled",
        state=state,
        created_at=at,
        refreshed_at=at,
        plan_digest="d",
        said=said(route, *changes),  # type: ignore[arg-type]
    )


def outcome(realised: Interval, predicted: Interval = PREDICTED) -> Outcome:
    promise = Promise(
        route="chat", load=LOAD_1, setting=DRAFT_3, tokens_per_pass=1.8, predicted=predicted
    )
    return Outcome(condition=Condition.QUIET, promise=promise, realised=realised)


def seen(arm: str, turn: int, speed: float, passes: int = 100, level: int = 1) -> Block:
    place = ("chat", load_level_of(level))
    decoding = Decoding(tokens=round(100 * speed), passes=passes, row_s=100.0)
    return block(arm, turn, Level(concurrency=level), decoding={place: decoding})


def test_what_was_approved_is_the_promise_and_what_is_open_stands_in_for_it() -> None:
    listed = [
        stored(3, State.PENDING, change(DRAFT_3), change(LOOKUP_5, load=LOAD_4)),
        stored(2, State.PROMOTED, replace(change(DRAFT_3), over_off=Interval.certain(1.3))),
        stored(1, State.SUPERSEDED, change(DRAFT_3, load=LOAD_4)),
    ]
    live = plan(("chat", LOAD_1, DRAFT_3), ("chat", LOAD_4, LOOKUP_5))

    first, second = promises_of(listed, live)

    assert (first.load, first.setting, first.predicted.mean) == (LOAD_1, DRAFT_3, 1.3)
    assert (second.load, second.setting) == (LOAD_4, LOOKUP_5)


def test_nothing_is_promised_where_the_plan_runs_another_setting_or_off() -> None:
    listed = [stored(1, State.PROMOTED, change(DRAFT_3), change(OFF, load=LOAD_4))]

    assert promises_of(listed, plan(("chat", LOAD_1, LOOKUP_5))) == ()


def test_a_promise_is_held_against_the_same_route_and_load_under_both_plans() -> None:
    blocks = [
        seen(arm, turn, speed * pace)
        for turn, pace in enumerate((1.0, 0.5))
        for arm, speed in (("off", 40.0), ("reviewed", 60.0))
    ]
    blocks += [seen("reviewed", turn, 900.0, level=4) for turn in range(2)]
    promise = outcome(PREDICTED).promise

    (found,) = outcomes_of(Condition.QUIET, [promise], blocks)

    assert found.realised.mean == pytest.approx(1.5)
    assert found.is_inside


def test_rounds_with_more_passes_count_more() -> None:
    blocks = [
        seen("off", 0, 50.0, passes=300),
        seen("reviewed", 0, 50.0, passes=300),
        seen("off", 1, 50.0),
        seen("reviewed", 1, 100.0),
    ]

    (found,) = outcomes_of(Condition.QUIET, [outcome(PREDICTED).promise], blocks)

    assert found.realised.mean == pytest.approx(2**0.25)


def test_a_route_that_was_not_seen_is_no_prediction() -> None:
    blocks = [seen(arm, turn, 50.0, level=4) for turn in range(2) for arm in ("off", "reviewed")]

    assert outcomes_of(Condition.QUIET, [outcome(PREDICTED).promise], blocks) == ()


@pytest.mark.parametrize(
    ("realised", "is_inside"),
    [
        (Interval.certain(1.59), True),
        (Interval.certain(1.61), False),
        (Interval.certain(1.21), True),
        (Interval.certain(1.19), False),
        (Interval(low=1.0, mean=1.19, high=1.19**2), True),
        (Interval(low=1.12, mean=1.19, high=1.19**2 / 1.12), True),
        (Interval(low=1.14, mean=1.15, high=1.15**2 / 1.14), False),
    ],
)
def test_a_prediction_holds_within_its_interval_and_the_results_own_error(
    realised: Interval, is_inside: bool
) -> None:
    assert outcome(realised).is_inside is is_inside


def test_coverage_and_error_are_of_all_predictions() -> None:
    found = [outcome(Interval.certain(1.4)), outcome(Interval.certain(2.8))]

    assert coverage(found) == 0.5
    assert median_error(found) == pytest.approx(0.25)
    assert coverage([]) is None
    assert median_error([]) is None


def test_a_speed_above_tokens_per_pass_is_counted_whatever_became_of_it() -> None:
    impossible = replace(change(DRAFT_3), over_off=Interval(low=1.5, mean=1.9, high=3.0))
    listed = [
        stored(1, State.SUPERSEDED, impossible, change(LOOKUP_5, load=LOAD_4)),
        stored(2, State.PENDING, replace(impossible, proposed=OFF)),
    ]

    assert num_impossible(listed) == 1
