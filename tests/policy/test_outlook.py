"""What is believed of many windows ahead, against worlds whose windows are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from collectors.records import Method
from policy.acceptance import AcceptanceModel
from policy.cost import CostModel
from policy.learning import Learner
from policy.outlook import Outlook
from policy.types import Evidence, Observation
from tests.policy.worlds import END_S, draft, lookup, observation, survival_of, window

FAMILY = draft(1)
EASY, HARD = 0.9, 0.1


def seen(hazard: float, passes: int = 300, evidence: Evidence = Evidence.LIVE) -> Observation:
    return observation(draft(3), survival_of((hazard,) * 3), passes=passes, evidence=evidence)


def learned(windows: Sequence[Sequence[Observation]]) -> Learner:
    """Windows of a minute each, oldest first, the last one up to now."""
    learner = Learner(AcceptanceModel.empty(360_000.0), CostModel.empty())
    for age, observations in zip(range(len(windows) - 1, -1, -1), windows, strict=True):
        learner.observe(window(observations, end_s=END_S - 60 * age))
    return learner


def outlook(learner: Learner, num_windows: int = 30, num_draws: int = 4000) -> Outlook:
    return Outlook(
        learner.acceptance,
        learner.regimes,
        np.random.default_rng(0),
        num_draws=num_draws,
        num_windows=num_windows,
    )


def tokens(hazard: float) -> float:
    return 1 + sum(survival_of((hazard,) * 3))


def test_a_steady_route_is_expected_to_go_on() -> None:
    ahead = outlook(learned([[seen(0.6)] for _ in range(40)]))
    assert ahead.mean_tokens("chat", FAMILY)[3] == pytest.approx(tokens(0.6), rel=0.01)
    drawn = ahead.drawn_tokens("chat", FAMILY)[:, 3]
    assert drawn.mean() == pytest.approx(tokens(0.6), rel=0.01)
    assert drawn.std() < 0.05


def test_what_is_in_force_counts_most_and_the_more_the_nearer_one_looks() -> None:
    """Half an hour of each in turn, the easy one now."""
    turns = [[seen(hazard)] for hazard in (EASY, HARD, EASY) for _ in range(30)]
    learner = learned(turns)
    near, far = (
        outlook(learner, num_windows).mean_tokens("chat", FAMILY)[3] for num_windows in (1, 300)
    )
    assert near > 0.97 * tokens(EASY)
    assert 0.4 * (tokens(EASY) + tokens(HARD)) < far < 0.9 * tokens(EASY)


def test_routes_that_flip_each_window_are_their_mean() -> None:
    flips = [[seen(EASY if number % 2 else HARD)] for number in range(80)]
    mean = outlook(learned(flips)).mean_tokens("chat", FAMILY)[3]
    assert mean == pytest.approx((tokens(EASY) + tokens(HARD)) / 2, rel=0.1)


def test_a_method_that_was_only_replayed_is_as_unsure_in_many_regimes_as_in_one() -> None:
    replay = observation(lookup(3), survival_of((0.7,) * 3), passes=80, evidence=Evidence.REPLAY)
    turns = [[seen(hazard)] for hazard in (EASY, HARD, EASY, HARD) for _ in range(15)]
    steady = [[seen(EASY)] for _ in range(60)]
    spread = [
        float(outlook(learned([*windows, [replay]])).drawn_tokens("chat", lookup(1))[:, 3].std())
        for windows in (turns, steady)
    ]
    assert spread[0] == pytest.approx(spread[1], rel=0.2)


def test_replays_and_scores_make_surer_what_is_live_already() -> None:
    live = [seen(0.6, 40)]
    more = [*live, seen(0.6, 400, Evidence.REPLAY), seen(0.6, 400, Evidence.COUNTERFACTUAL)]
    few, many = (
        outlook(learned([found])).drawn_tokens("chat", FAMILY)[:, 3].std() for found in (live, more)
    )
    assert many < 0.6 * few


def test_what_is_half_believed_is_so_in_mean_and_draws() -> None:
    learner = learned([[seen(0.9, 100)]] * 20)
    (regime,) = learner.regimes.of("chat").regimes
    sure = outlook(learner).mean_tokens("chat", FAMILY)[3]
    regime.trusts[FAMILY] = 0.5
    regime.counts[FAMILY] *= 0.0
    unknown = outlook(learner).mean_tokens("chat", FAMILY)[3]
    regime.counts[FAMILY] += np.array([[2.0], [200.0]])

    ahead = outlook(learner)
    drawn = ahead.drawn_tokens("chat", FAMILY)[:, 3]

    assert ahead.mean_tokens("chat", FAMILY)[3] == pytest.approx((unknown + 1) / 2, rel=0.1)
    assert np.mean(drawn < 1.2) == pytest.approx(0.5, abs=0.05)
    assert sure > unknown * 0.9


def test_regimes_fade_with_the_half_life_of_their_route() -> None:
    def weight(half_life_s: float) -> float:
        model = AcceptanceModel.empty(360_000.0, {"chat": half_life_s})
        learner = Learner(model, CostModel.empty())
        for number in range(120):
            learner.observe(window([seen(0.6, 40)], end_s=END_S + 60 * number))
        (counts,) = learner.regimes.of("chat").regimes[0].counts.values()
        return float(counts[:, 0].sum())

    assert weight(600.0) < 0.4 * weight(360_000.0)


def test_impossible_counts_are_left_out_and_named_up_to_a_bound() -> None:
    bad = Observation(
        route="chat",
        setting=draft(1),
        load=seen(0.5).load,
        start_s=END_S - 60,
        end_s=END_S,
        passes=1,
        verify_passes=2,
        drafted=2,
        accepted=0,
        tokens=1,
    )
    learner = learned([[bad] * 40] * 40)
    assert 0 < len(learner.ignored) <= 1000
    assert learner.acceptance.evidence("chat", Method.DRAFT_MODEL) == ()
