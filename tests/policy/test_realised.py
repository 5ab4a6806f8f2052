"""Predicted beside realised: which windows count, from when on, and how sure the figure is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest

from collectors.records import OFF, LoadLevel, Plan, PlanEntry, Setting, load_level_of
from policy.decode_sum import DecodeSum
from policy.realised import MIN_WINDOWS, Ran, RealisedLevel, realised
from policy.types import Advice, Interval, LoadChange, LoadMix, Recommendation, Window
from tests.policy.worlds import draft, load_change

ONE, FOUR, EIGHT = load_level_of(1), load_level_of(4), load_level_of(8)
LENGTH_S = 60.0
NOTHING = Interval(low=0.0, mean=0.0, high=0.0)
BEFORE = Plan()


def plan(*settings: tuple[str, Setting], load: LoadLevel = FOUR) -> Plan:
    return Plan(entries=tuple(PlanEntry(route=r, load=load, setting=s) for r, s in settings))


SINCE = plan(("chat", draft(3)))


def change(load: LoadLevel = FOUR, predicted: Interval | None = None) -> LoadChange:
    return load_change(load, OFF, draft(3), goodput=predicted)


def said(*changes: LoadChange, predicted: Mapping[str, float] | None = None) -> Recommendation:
    return Recommendation(
        route="chat",
        advice=Advice.CHANGE,
        changes=changes or (change(predicted=Interval(low=90.0, mean=100.0, high=110.0)),),
        predicted_goodput=predicted or {},
    )


def window(
    number: int,
    rate: float,
    load: LoadLevel = FOUR,
    rows: Mapping[str, float] | None = None,
    route: str | None = None,
    busy_s: float = 10.0,
) -> Window:
    """A minute in which steps of one level delivered so many tokens a second."""
    tokens = round(rate * busy_s)
    counted = DecodeSum(load=load, route=route, steps=100, tokens=tokens, busy_s=busy_s)
    mix = LoadMix(
        load=load,
        steps=100,
        rows_by_route=rows or {"chat": 3.0, "story": 1.0},
        context_tokens=512.0,
        tokens=tokens,
        busy_s=busy_s,
    )
    start_s = LENGTH_S * number
    return Window(start_s=start_s, end_s=start_s + LENGTH_S, mixes=(mix,), decode_sums=(counted,))


def ran(plan: Plan, numbers: Iterable[int], rate: float, **given: object) -> list[Ran]:
    return [Ran(window=window(n, rate, **given), plan=plan) for n in numbers]  # type: ignore[arg-type]


def only(windows: Sequence[Ran], since: int = 20, one: Recommendation | None = None):
    (level,) = realised(one or said(), windows, since * LENGTH_S).levels
    return level


def rate_of(level: RealisedLevel) -> float | None:
    counted = level.realised
    return counted.tokens_per_s.mean if counted and counted.tokens_per_s else None


def test_realised_stands_between_predicted_and_before() -> None:
    level = only([*ran(BEFORE, range(20), 50.0), *ran(SINCE, range(20, 40), 95.0)])

    assert level.before is not None
    assert level.before.tokens_per_s == Interval(low=50.0, mean=50.0, high=50.0)
    assert rate_of(level) == 95.0
    assert (level.over_predicted, level.over_before) == pytest.approx((-0.05, 0.9))
    assert (level.former, level.setting) == (OFF, draft(3))
    assert level.realised is not None
    assert (level.realised.windows, level.realised.steps) == (20, 2000)
    assert (level.realised.start_s, level.realised.end_s) == (1200.0, 2400.0)


def test_a_rate_is_tokens_over_seconds_and_no_mean_of_rates() -> None:
    busy = [Ran(window=window(20 + n, 10.0 + n % 2 * 90, busy_s=1.0 + n % 2), plan=SINCE)
            for n in range(20)]  # fmt: skip

    assert rate_of(only(busy)) == pytest.approx((10.0 * 1 + 100.0 * 2) / 3)


@pytest.mark.parametrize(("windows", "steps"), [(MIN_WINDOWS - 1, 1000), (MIN_WINDOWS, 5)])
def test_too_little_gives_counts_and_no_figure(windows: int, steps: int) -> None:
    few = [
        Window(
            start_s=one.window.start_s,
            end_s=one.window.end_s,
            mixes=one.window.mixes,
            decode_sums=(DecodeSum(load=FOUR, route=None, steps=steps, tokens=900, busy_s=10.0),),
        )
        for one in ran(SINCE, range(20, 20 + windows), 90.0)
    ]

    level = only([Ran(window=one, plan=SINCE) for one in few])

    assert level.realised is not None
    assert (level.realised.windows, level.realised.steps) == (windows, windows * steps)
    assert (level.realised.tokens_per_s, level.over_predicted, level.over_before) == (None,) * 3
    assert level.before is None


def test_a_plan_in_force_twice_counts_both_times_and_nothing_in_between() -> None:
    windows = [
        *ran(SINCE, range(20, 26), 90.0),
        *ran(BEFORE, range(26, 46), 50.0),
        *ran(SINCE, range(46, 52), 110.0),
    ]

    level = only(windows)

    assert rate_of(level) == pytest.approx(100.0)
    assert level.realised is not None
    assert level.realised.windows == 12
    assert level.before is None, "what ran after a rollback is not what ran before"


def test_a_level_that_nothing_ran_at_shows_its_prediction_alone() -> None:
    both = said(change(), change(EIGHT, Interval(low=1.0, mean=2.0, high=3.0)))
    since = plan(("chat", draft(3)))
    since = Plan(entries=(*since.entries, PlanEntry(route="chat", load=EIGHT, setting=draft(3))))

    found = realised(both, ran(since, range(20, 40), 90.0), 1200.0)

    four, eight = found.levels
    assert four.realised is not None
    assert (eight.realised, eight.before, eight.over_predicted) == (None, None, None)
    assert eight.predicted == Interval(low=1.0, mean=2.0, high=3.0)


def test_a_level_that_nobody_predicted_shows_what_ran() -> None:
    windows = [
        *ran(BEFORE, range(20), 70.0, load=EIGHT),
        *ran(SINCE, range(20, 40), 77.0, load=EIGHT),
    ]

    _, eight = realised(said(), windows, 1200.0).levels

    assert (eight.load, eight.predicted, eight.over_predicted) == (EIGHT, None, None)
    assert eight.over_before == pytest.approx(0.1)
    assert (eight.former, eight.setting) == (OFF, OFF)


def test_levels_without_rows_of_the_route_are_left_out() -> None:
    alone = ran(SINCE, range(20, 40), 90.0, load=EIGHT, rows={"story": 8.0})

    assert [level.load for level in realised(said(), alone, 1200.0).levels] == [FOUR]


def test_where_a_step_holds_one_row_only_the_routes_own_steps_count() -> None:
    lone = said(change(ONE, Interval(low=90.0, mean=100.0, high=110.0)))
    since = plan(("chat", draft(3)), load=ONE)
    windows = [
        *ran(since, range(20, 40), 98.0, load=ONE, route="chat"),
        *ran(since, range(20, 40), 10.0, load=ONE, route="story"),
    ]

    level = only(windows, one=lone)

    assert level.realised is not None
    assert (rate_of(level), level.realised.windows) == (98.0, 20)


def test_windows_under_another_plan_for_batch_mates_are_not_mixed_in() -> None:
    """Several recommendations are approved one after another: the last plan has all of them."""
    joint = plan(("chat", draft(3)), ("story", draft(2)))
    windows = [
        *ran(BEFORE, range(20), 50.0),
        *ran(SINCE, range(20, 22), 70.0),
        *ran(joint, range(22, 42), 90.0),
    ]

    level = only(windows)

    assert rate_of(level) == 90.0
    assert level.others == ("story",)


def test_the_plan_before_is_the_last_that_ran_for_long_enough() -> None:
    joint = plan(("chat", draft(3)), ("story", draft(2)))
    shortly = plan(("story", draft(2)))
    windows = [
        *ran(BEFORE, range(18), 50.0),
        *ran(shortly, range(18, 20), 60.0),
        *ran(joint, range(20, 40), 90.0),
    ]

    level = only(windows)

    assert level.before is not None
    assert (level.before.windows, level.over_before) == (18, pytest.approx(0.8))


def test_an_entry_that_says_the_default_is_no_other_plan() -> None:
    spelled = plan(("chat", draft(3)), ("story", OFF))
    level = only([*ran(SINCE, range(20, 30), 80.0), *ran(spelled, range(30, 40), 100.0)])

    assert level.realised is not None
    assert (rate_of(level), level.realised.windows) == (90.0, 20)


def test_shares_of_rows_say_how_the_traffic_moved() -> None:
    windows = [
        *ran(BEFORE, range(20), 50.0, rows={"chat": 1.0, "story": 3.0}),
        *ran(SINCE, range(20, 40), 90.0, rows={"chat": 4.0}),
    ]

    level = only(windows)

    assert level.before is not None
    assert level.realised is not None
    assert level.before.row_shares == {"chat": 0.25, "story": 0.75}
    assert level.realised.row_shares == {"chat": 1.0}


def test_a_recommendation_that_kept_no_interval_has_equal_ends() -> None:
    level = only(ran(SINCE, range(20, 40), 90.0), one=said(change(), predicted={"3-4": 80.0}))

    assert level.predicted == Interval(low=80.0, mean=80.0, high=80.0)
    assert level.over_predicted == pytest.approx(0.125)


def test_windows_stored_without_sums_count_for_nothing() -> None:
    bare = [
        Ran(
            window=Window(start_s=one.window.start_s, end_s=one.window.end_s,
                          mixes=one.window.mixes),
            plan=SINCE,
        )
        for one in ran(SINCE, range(20, 40), 90.0)
    ]  # fmt: skip

    assert only(bare).realised is None


def test_intervals_hold_the_truth_although_successive_windows_are_alike() -> None:
    """Traffic wanders over some ten windows; each window taken for itself would hold it in 44."""
    held = sum(_holds(np.random.default_rng(seed)) for seed in range(100))
    assert 80 <= held <= 97


def _holds(generator: np.random.Generator) -> bool:
    wander, rates = 0.0, []
    for _ in range(400):
        wander = 0.8 * wander + generator.normal(0.0, 6.0)
        rates.append(100.0 + wander + generator.normal(0.0, 3.0))
    windows = [Ran(window=window(20 + n, rate), plan=SINCE) for n, rate in enumerate(rates)]
    level = only(windows)
    assert level.realised is not None
    assert level.realised.tokens_per_s is not None
    return level.realised.tokens_per_s.low <= 100.0 <= level.realised.tokens_per_s.high
