"""When an operator is bothered again, and when a refused change comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectors.records import OFF, LatencyHistogram
from policy.evidence_amount import amount_of
from policy.materiality import (
    Refusal,
    headline,
    material_reason,
    return_reason,
    snooze_line,
    without_refused,
)
from policy.types import Advice, Evidence, Interval, Observation, RequestObservation, Window
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import LOAD_1, LOAD_2, change, said

REFUSED = Refusal(
    load=LOAD_1,
    setting=DRAFT_3,
    headline=Interval(low=0.3, mean=0.4, high=0.5),
    passes=1000,
    recommendation=7,
    verb="rejected",
    who="ann",
    at_s=100.0,
    why="not before the weekend.",
)


@pytest.mark.parametrize("gain", [0.31, 0.41, 0.49])
def test_a_mean_inside_the_interval_that_was_shown_is_no_news(gain: float):
    assert material_reason(said("chat", change(gain=0.4)), said("chat", change(gain=gain))) is None


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (change(gain=0.51), "its engine total at load 1 is +51% now, outside +30% to +50%"),
        (change(gain=0.29), "its engine total at load 1 is +29% now"),
        (change(LOOKUP_5), "it proposes prompt_lookup k=5 over off at load 1"),
        (change(current=LOOKUP_5), "it proposes draft_model k=3 over prompt_lookup k=5 at load 1"),
        (change(load=LOAD_2), "no longer changes the Setting at load 1"),
    ],
)
def test_another_setting_or_a_mean_outside_the_interval_is_material(now, reason: str):
    found = material_reason(said("chat", change()), said("chat", now))

    assert found is not None
    assert reason in found


def test_another_advice_is_material():
    kept = said("chat", change(OFF), advice=Advice.NO_CHANGE)

    assert material_reason(said(), kept) == "it says no change now"


def test_no_interval_counts_as_narrower_than_a_hundredth():
    exact = replace(change(), engine_total=Interval.certain(1.4))
    near = replace(change(), engine_total=Interval.certain(1.405))

    assert material_reason(said("chat", exact), said("chat", near)) is None


@pytest.mark.parametrize(
    ("found", "passes_since", "returns"),
    [
        (Interval(low=0.51, mean=0.6, high=0.7), 0, True),
        (Interval(low=0.49, mean=0.6, high=0.7), 0, False),
        (Interval(low=0.45, mean=0.51, high=0.6), 1000, True),
        (Interval(low=0.45, mean=0.51, high=0.6), 999, False),
        (Interval(low=0.45, mean=0.5, high=0.6), 5000, False),
        (Interval(low=0.05, mean=0.1, high=0.2), 5000, False),
    ],
)
def test_a_refused_change_comes_back_only_on_clearly_better_evidence(
    found: Interval, passes_since: int, returns: bool
):
    assert (return_reason(REFUSED, found, passes_since) is not None) == returns


def test_what_was_refused_is_taken_out_and_the_rest_stays():
    two = said("chat", change(), change(LOOKUP_5, load=LOAD_2))

    left, snoozed = without_refused(two, (REFUSED,), {7: 10})

    assert [one.refusal for one in snoozed] == [REFUSED]
    assert [one.proposed for one in left.changes] == [OFF, LOOKUP_5]
    assert left.advice is Advice.CHANGE
    assert left.reasons[-1] == snooze_line(REFUSED)
    assert left.changes[0].reason.startswith("draft_model k=3 was rejected and is snoozed.")


def test_a_recommendation_of_which_nothing_is_left_changes_nothing():
    left, _ = without_refused(said(), (REFUSED,), {})

    assert left.advice is Advice.NO_CHANGE
    assert left.reasons[0] == (
        "draft_model k=3 at load 1 is snoozed: #7 was rejected by ann because not before the "
        "weekend; it comes back when its engine total lies wholly above +50%, or 1000 more passes "
        "of the route put its mean above +50%."
    )


def test_another_setting_than_the_refused_one_is_proposed():
    other = said("chat", change(LOOKUP_5))

    assert without_refused(other, (REFUSED,), {}) == (other, ())


def test_the_headline_lies_inside_its_interval():
    figure = headline(change())

    assert figure.low <= figure.mean <= figure.high


def observation(evidence: Evidence, passes: int, route: str = "chat") -> Observation:
    return Observation(
        route=route,
        setting=OFF,
        load=LOAD_1,
        evidence=evidence,
        start_s=0.0,
        end_s=60.0,
        passes=passes,
        verify_passes=0,
        drafted=0,
        accepted=0,
        tokens=passes,
    )


def window(start_s: float, *seen: Observation) -> Window:
    done = RequestObservation(
        route="chat",
        setting=OFF,
        load=LOAD_1,
        requests=3,
        completion_tokens=30,
        decode_s=1.0,
        ttft=LatencyHistogram.of([0.1]),
        chunk_gaps=LatencyHistogram.of([0.1]),
        tpot=LatencyHistogram.of([0.1]),
    )
    return Window(start_s=start_s, end_s=start_s + 60, observations=seen, requests=(done,))


def test_counterfactual_passes_and_other_routes_are_no_evidence_that_ran():
    windows = (
        window(0, observation(Evidence.LIVE, 10), observation(Evidence.COUNTERFACTUAL, 500)),
        window(60, observation(Evidence.REPLAY, 7), observation(Evidence.LIVE, 9, "story")),
        replace(window(120, observation(Evidence.LIVE, 99)), is_calibration=True),
    )

    amount = amount_of("chat", windows, replay_pairs=4)

    assert (amount.passes, amount.windows, amount.requests, amount.replay_pairs) == (17, 1, 6, 4)
    assert amount_of("chat", windows, since_s=60).passes == 7
