"""Estimates of plans that did not run, against the truth of a simulated engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from collectors.records import OFF, LoadLevel, Plan, PlanEntry, Setting, load_level_of
from policy.errors import InvalidInput
from policy.lottery import Chance
from policy.off_policy import Estimator, PlanValue, Unit, evaluate
from policy.types import Interval
from tests.policy.worlds import draft

LOW, HIGH = load_level_of(1), load_level_of(16)
TRUTH = {
    ("chat", LOW): {OFF: 40.0, draft(3): 70.0},
    ("chat", HIGH): {OFF: 300.0, draft(3): 220.0},
    ("story", LOW): {OFF: 20.0, draft(3): 24.0},
}
BUSY_S = {LOW: 20.0, HIGH: 5.0}
PLAN = Plan(
    entries=(
        PlanEntry(route="chat", load=LOW, setting=draft(3)),
        PlanEntry(route="story", load=LOW, setting=draft(3)),
    )
)
Arms = tuple[tuple[Setting, float], ...]


def even(_window: int) -> Arms:
    return (OFF, 0.7), (draft(3), 0.3)


def logged(
    generator: np.random.Generator,
    num_windows: int,
    arms_at: Callable[[int], Arms] = even,
    bias: float = 1.0,
) -> list[Unit]:
    """Draw an arm for each place and window; all places of a window share its ups and downs."""
    units = []
    for window in range(num_windows):
        shared = generator.normal(1.0, 0.2)
        for (route, load), means in TRUTH.items():
            arms = arms_at(window)
            chosen = arms[generator.choice(len(arms), p=[chance for _, chance in arms])][0]
            reward = means[chosen] * shared * generator.normal(1.0, 0.1)
            units.append(
                Unit(
                    window_s=float(window),
                    setting=chosen,
                    chance=Chance(route=route, load=load, arms=arms),
                    tokens_per_s=reward,
                    busy_s=BUSY_S[load],
                    predicted=bias * means[chosen],
                )
            )
    return units


def truth_of(plan: Plan) -> float:
    tokens = sum(
        BUSY_S[place[1]] * means[plan.setting_for(*place)] for place, means in TRUTH.items()
    )
    return tokens / sum(BUSY_S.values())


def predictions(plan: Plan, bias: float = 1.0) -> dict[tuple[str, LoadLevel], float]:
    return {place: bias * means[plan.setting_for(*place)] for place, means in TRUTH.items()}


def values(count: int, bias: float, num_windows: int = 60) -> list[PlanValue]:
    return [
        evaluate(
            logged(np.random.default_rng(seed), num_windows, bias=bias),
            PLAN,
            predictions(PLAN, bias),
        )
        for seed in range(count)
    ]


def means_of(found: list[PlanValue], estimator: Estimator) -> np.ndarray:
    return np.array(
        [
            one.tokens_per_s.mean
            for value in found
            for one in value.estimates
            if one.estimator is estimator
        ]
    )


@pytest.mark.parametrize("bias", [1.0, 1.3])
def test_estimates_from_the_log_are_unbiased_even_where_the_model_is_wrong(bias: float):
    found = values(120, bias)

    for estimator in (Estimator.IPS, Estimator.SNIPS, Estimator.DR):
        drawn = means_of(found, estimator)
        error = drawn.std(ddof=1) / np.sqrt(len(drawn))
        assert abs(drawn.mean() - truth_of(PLAN)) < 4 * error + 0.005 * truth_of(PLAN)
    direct = means_of(found, Estimator.DIRECT)
    assert direct == pytest.approx(bias * truth_of(PLAN))


def same_demand(generator: np.random.Generator, num_windows: int) -> list[Unit]:
    """The same 800 tokens are asked for in each window; drafts serve them in less time."""
    means, arms = TRUTH["chat", LOW], even(0)
    units = []
    for window in range(num_windows):
        chosen = draft(3) if generator.random() < dict(arms)[draft(3)] else OFF
        rate = means[chosen] * generator.normal(1.0, 0.05)
        unit = unit_of(window, LOW, chosen, arms)
        units.append(replace(unit, tokens_per_s=rate, busy_s=800.0 / rate, predicted=50.0))
    return units


def test_what_an_arm_saves_of_the_engines_time_is_not_lost_to_its_estimate():
    """Every window has the same tokens, so their sums over all windows would show no gain."""
    drafting = Plan(default=draft(3))
    found = evaluate(same_demand(np.random.default_rng(8), 4000), drafting, {("chat", LOW): 50.0})

    for one in found.estimates:
        if one.estimator is not Estimator.DIRECT:
            assert one.tokens_per_s.mean == pytest.approx(70.0, rel=0.08)
            assert one.gain.low > 0.3
            assert one.coverage == pytest.approx(1.0)


@pytest.mark.parametrize("bias", [1.0, 1.3])
def test_the_doubly_robust_estimate_varies_less_than_inverse_propensities(bias: float):
    found = values(120, bias)

    assert means_of(found, Estimator.DR).var() < 0.5 * means_of(found, Estimator.IPS).var()


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    found, truth = values(120, 1.0), truth_of(PLAN)

    for estimator in (Estimator.IPS, Estimator.SNIPS, Estimator.DR):
        held = [
            one.tokens_per_s.low <= truth <= one.tokens_per_s.high
            for value in found
            for one in value.estimates
            if one.estimator is estimator
        ]
        assert 0.84 <= np.mean(held) <= 0.96


def test_errors_that_windows_share_are_not_averaged_away():
    """All places of a window move together; taking them for independent would narrow intervals."""
    found = evaluate(logged(np.random.default_rng(1), 400), PLAN, predictions(PLAN))
    (dr,) = [one for one in found.estimates if one.estimator is Estimator.DR]
    half = (dr.tokens_per_s.high - dr.tokens_per_s.low) / 2

    assert half > 1.6 * 0.2 * truth_of(PLAN) / np.sqrt(400)


def test_an_arm_never_logged_nor_predicted_is_not_evaluable_and_not_zero():
    strange = replace(PLAN, entries=(PlanEntry(route="chat", load=LOW, setting=draft(7)),))
    known = {place: rate for place, rate in predictions(Plan()).items() if place[0] == "story"}

    found = evaluate(logged(np.random.default_rng(2), 50), strange, known)

    (place,) = [one for one in found.places if (one.route, one.load) == ("chat", LOW)]
    assert place.by_estimator == {}
    assert place.not_evaluable is not None
    assert "in force in 0 windows" in place.not_evaluable
    assert found.evaluable_share < 0.75
    for estimate in found.estimates:
        assert estimate.coverage <= found.evaluable_share
        assert estimate.tokens_per_s.mean > 0


def test_an_arm_that_was_only_replayed_has_a_direct_estimate_only():
    other = Plan(default=draft(7))

    found = evaluate(logged(np.random.default_rng(3), 50), other, dict.fromkeys(TRUTH, 90.0))

    assert [one.estimator for one in found.estimates] == [Estimator.DIRECT]
    assert all(place.not_evaluable is None for place in found.places)


def in_turn(window: int) -> Arms:
    sure = float(window % 4 == 0)
    return (OFF, 1 - sure), (draft(3), sure)


def test_a_plan_that_took_turns_is_compared_with_itself_where_it_ran():
    """Nothing was drawn, so what the others yielded at their times says nothing of this one."""
    drafting = Plan(default=draft(3))
    found = evaluate(logged(np.random.default_rng(4), 400, in_turn), drafting, {})

    for one in found.estimates:
        assert one.tokens_per_s.mean == pytest.approx(truth_of(drafting), rel=0.04)
        assert one.gain.mean == pytest.approx(0.0)
        assert one.coverage == pytest.approx(0.25, abs=0.05)


def night_and_day(
    generator: np.random.Generator, num_windows: int, share_drawn: float
) -> list[Unit]:
    """Requests are twice as easy by night, when drafts run for sure; by day off does.

    In some windows of both an arm is drawn instead, drafts with a chance of 0.3.
    """
    sure = [Chance.certain(("chat", LOW), setting, ()) for setting in (OFF, draft(3))]
    both = Chance(route="chat", load=LOW, arms=even(0))
    units = []
    for window in range(num_windows):
        is_night = window % 2 == 0
        chance = both if generator.random() < share_drawn else sure[is_night]
        chosen = draft(3) if generator.random() < chance.of(draft(3)) else OFF
        ease = (2.0 if is_night else 1.0) * generator.normal(1.0, 0.1)
        units.append(
            Unit(
                window_s=float(window),
                setting=chosen,
                chance=chance,
                tokens_per_s=(44.0 if chosen == draft(3) else 40.0) * ease,
                busy_s=20.0,
            )
        )
    return units


def averaged(units: list[Unit]) -> list[Unit]:
    """The same with each arm's chance averaged over all windows."""
    mean = float(np.mean([unit.chance.of(draft(3)) for unit in units]))
    chance = Chance(route="chat", load=LOW, arms=((OFF, 1 - mean), (draft(3), mean)))
    return [replace(unit, chance=chance) for unit in units]


def test_chances_that_were_drawn_tell_the_truth_where_averages_take_traffic_for_it():
    """Drafts yield 44 by day and 88 by night; averages see mostly the night in them."""
    drafting, truth = Plan(default=draft(3)), (44.0 + 88.0) / 2
    held, misled = 0, 0
    for seed in range(100):
        units = night_and_day(np.random.default_rng(seed), 600, share_drawn=0.3)
        by_draw, by_average = (ips_of(given, drafting) for given in (units, averaged(units)))
        held += by_draw.low <= truth <= by_draw.high
        misled += by_average.low > truth

    assert held >= 85
    assert misled >= 95


def ips_of(units: list[Unit], plan: Plan) -> Interval:
    (one,) = [
        entry for entry in evaluate(units, plan, {}).estimates if entry.estimator is Estimator.IPS
    ]
    return one.tokens_per_s


def test_windows_without_a_choice_do_not_thin_a_gain_out():
    """In them the plan is compared with itself; both places yield 40 and 300 a second at off."""
    generator = np.random.default_rng(6)
    sure = ((OFF, 1.0),)
    units = []
    for window in range(900):
        arms = even(window) if window % 3 == 0 else sure
        drafts = generator.random() < dict(arms).get(draft(3), 0.0)
        units += [
            unit_of(window, LOW, draft(3) if drafts else OFF, arms),
            unit_of(window, HIGH, OFF, sure),
        ]
    low_only = Plan(entries=(PlanEntry(route="chat", load=LOW, setting=draft(3)),))

    ips = ips_of(units, low_only)

    assert ips.low < truth_of_chat(low_only) < ips.high
    assert ips.low > truth_of_chat(Plan())


def unit_of(window: int, load: LoadLevel, setting: Setting, arms: Arms) -> Unit:
    return Unit(
        window_s=float(window),
        setting=setting,
        chance=Chance(route="chat", load=load, arms=arms),
        tokens_per_s=TRUTH["chat", load][setting],
        busy_s=BUSY_S[load],
    )


def truth_of_chat(plan: Plan) -> float:
    places = [("chat", LOW), ("chat", HIGH)]
    tokens = sum(BUSY_S[place[1]] * TRUTH[place][plan.setting_for(*place)] for place in places)
    return tokens / sum(BUSY_S.values())


def test_the_plan_that_ran_is_worth_what_it_yielded():
    units = logged(np.random.default_rng(5), 50, lambda _window: ((OFF, 1.0),))

    found = evaluate(units, Plan(), {})

    for one in found.estimates:
        assert one.gain.mean == pytest.approx(0.0)
        assert one.tokens_per_s.mean == pytest.approx(one.logged_tokens_per_s)


def test_nothing_logged_is_no_estimate():
    found = evaluate([], PLAN, {})

    assert (found.estimates, found.places, found.windows, found.evaluable_share) == ((), (), 0, 0.0)


@pytest.mark.parametrize("shares", [(0.5, 0.4), (1.5, -0.5), (float("nan"), 1.0)])
def test_chances_that_are_no_distribution_are_refused(shares: tuple[float, float]):
    with pytest.raises(InvalidInput, match="sum to 1"):
        Chance(route="chat", load=LOW, arms=((OFF, shares[0]), (draft(3), shares[1])))
