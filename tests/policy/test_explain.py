"""Why not otherwise, from where on it would be, and what is worth trying: figures that hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectors.records import OFF, Method, Route, Setting
from policy.cost import CostModel
from policy.options import Objective, RecommendOptions
from policy.timings import MOST_SHAPES
from policy.types import Advice, Evidence, PlanEdit, Window
from tests.policy.test_recommend import ARMS, BOTH, asked, only, priced, requests, shared_world
from tests.policy.worlds import (
    END_S,
    draft,
    draft_costs,
    lookup,
    mix,
    observation,
    step_costs,
    survival_of,
    window,
)


def flat(hazard: float) -> Window:
    """One row; a drafted token takes a fifth of a plain step and each is kept as often."""
    return replace(priced(0.2), observations=(observation(draft(3), survival_of((hazard,) * 3)),))


def test_at_the_acceptance_named_the_setting_equals_off() -> None:
    (found,) = asked([flat(0.8)], OFF, (draft(3),))
    (point,) = found.turning_points
    assert point.needed_acceptance is not None
    assert point.acceptance == pytest.approx(0.8, abs=0.01)
    assert point.needed_tokens_per_pass == pytest.approx(1.6, abs=0.01)
    (there,) = asked([flat(point.needed_acceptance)], OFF, (draft(3),))
    assert there.turning_points[0].tokens_per_pass == pytest.approx(1.6, abs=0.01)
    assert only([there]).over_off.mean == pytest.approx(1.0, abs=0.01)


def test_where_no_acceptance_would_help_it_says_so() -> None:
    """Verifying one more position takes three steps: two tokens a pass are not enough."""
    world = replace(priced(3.0), observations=(observation(draft(1), (0.5,)),))
    (found,) = asked([world], OFF, (draft(1),))
    (point,) = found.turning_points
    assert point.needed_tokens_per_pass == pytest.approx(4.0, abs=0.02)
    assert point.needed_acceptance is None


def test_the_runner_up_is_compared_with_what_is_proposed() -> None:
    change = only(asked([priced(0.2)], OFF))
    assert change.runner_up is not None
    assert change.runner_up_reason is not None
    assert change.runner_up_reason.startswith("it gives -")
    assert f"against {draft(2).label}" in change.runner_up_reason


def test_a_runner_up_that_guardrails_refuse_is_refused_with_their_words() -> None:
    change = only(asked([priced(0.1)], draft(2)))
    assert change.runner_up_reason is not None
    assert "below the 3.0% that a change of this route must bring" in change.runner_up_reason


def test_each_kind_of_evidence_is_shown_with_what_it_weighs() -> None:
    world = priced(0.2)
    (live,) = world.observations
    kinds = {Evidence.LIVE: 100, Evidence.REPLAY: 100, Evidence.COUNTERFACTUAL: 100}
    seen = tuple(
        observation(live.setting, (0.8, 0.5, 0.2), passes=passes, evidence=kind)
        for kind, passes in kinds.items()
    )
    (found,) = asked([replace(world, observations=seen)])
    shares = found.curves[0].shares
    assert shares == pytest.approx(
        {Evidence.LIVE: 1 / 1.8, Evidence.REPLAY: 0.5 / 1.8, Evidence.COUNTERFACTUAL: 0.3 / 1.8}
    )


def test_a_change_that_rests_on_replays_says_so() -> None:
    seen = (observation(draft(3), (0.8, 0.5, 0.2), evidence=Evidence.REPLAY),)
    (found,) = asked([replace(priced(0.2), observations=seen)])
    assert found.reasons[-1].startswith("What is known of draft_model here is 100% replay")
    (live,) = asked([priced(0.2)])
    assert not any("hardly any of it was served" in reason for reason in live.reasons)


def test_an_entry_that_changed_too_often_stays_and_says_why() -> None:
    load = only(asked([priced(0.2)])).load
    edits = [PlanEdit(route="chat", load=load, at_s=END_S - 60 * age) for age in range(1, 5)]
    (held,) = asked([priced(0.2)], OFF, edits=edits)
    assert held.advice is Advice.NO_CHANGE
    assert "changed 4 times lately" in only([held]).reason
    (free,) = asked([priced(0.2)], OFF, edits=edits[:3])
    assert free.advice is Advice.CHANGE
    old = [replace(edit, at_s=edit.at_s - 4 * 3600) for edit in edits]
    assert asked([priced(0.2)], OFF, edits=old)[0].advice is Advice.CHANGE


def test_a_route_that_behaves_otherwise_may_change_again() -> None:
    """Hardly anything was kept, then nine in ten: changes made for the old ways are forgotten."""
    easy, hard = survival_of((0.9,) * 3), survival_of((0.05,) * 3)
    worlds = [
        replace(
            priced(0.2),
            observations=(observation(draft(3), hard if age >= 4 else easy, passes=400),),
            end_s=END_S - 60 * age,
        )
        for age in range(24)
    ]
    load = only(asked(worlds, OFF)).load
    edits = [PlanEdit(route="chat", load=load, at_s=END_S - 3000 + age) for age in range(4)]
    assert only(asked(worlds, OFF, edits=edits)).proposed == draft(3)
    steady = [replace(world, observations=priced(0.2).observations) for world in worlds]
    assert only(asked(steady, OFF, edits=edits)).proposed == OFF


def test_a_plan_that_may_fall_below_off_is_refused() -> None:
    """In force is a long draft at a loss; a short one is better, and may still lose to off."""
    world = replace(
        priced(0.30),
        observations=(
            observation(draft(3), (0.31, 0.05, 0.0)),
            observation(lookup(1), (0.32,), passes=60),
        ),
        draft_costs=(
            *draft_costs(lambda rows, depth: 0.0, (1,), (1, 2, 3)),
            *draft_costs(lambda rows, depth: 0.0, (1,), (1,), Method.PROMPT_LOOKUP),
        ),
    )
    assert only(asked([world], draft(3), (draft(3), lookup(1)))).proposed == OFF


def test_latency_lets_no_route_pay_for_another() -> None:
    """Drafts of the easy route slow the hopeless one, which shares its steps."""
    for objective, slowest in (
        (Objective.THROUGHPUT, 9.0),
        (Objective.BALANCED, 1.1),
        (Objective.LATENCY, 1.0),
    ):
        options = RecommendOptions(objective=objective)
        code, _ = asked([shared_world()], OFF, (draft(1), draft(4)), BOTH, options=options)
        change = only([code])
        seconds = 0.02 + 0.001 * (4 + 2 * change.proposed.k) + 0.0004 * change.proposed.k
        assert seconds <= slowest * 0.024 + 1e-6
        assert (change.proposed == draft(4)) is (objective is Objective.THROUGHPUT)


def test_trials_take_the_cheapest_evidence_that_is_lacking() -> None:
    world = replace(
        priced(0.2),
        observations=(
            observation(draft(3), (0.8, 0.5, 0.2)),
            observation(lookup(2), (0.72, 0.55), passes=150, evidence=Evidence.COUNTERFACTUAL),
        ),
        draft_costs=(
            *draft_costs(lambda rows, depth: 0.0, (1,), (1, 2, 3)),
            *draft_costs(lambda rows, depth: 0.0, (1,), (1, 2, 3), Method.PROMPT_LOOKUP),
        ),
    )
    suffix = Setting(method=Method.SUFFIX, k=3)
    (found,) = asked([world], OFF, (*ARMS, lookup(2), suffix))
    wanted = {trial.setting: trial.by for trial in found.trials}
    assert wanted == {lookup(2): Evidence.REPLAY, suffix: Evidence.COUNTERFACTUAL}
    assert all(trial.most_token_share == trial.win_share == 0 for trial in found.trials)


def test_live_trials_stay_within_their_share_and_off_routes_that_break_their_limits() -> None:
    world = priced(0.2)
    replayed = tuple(
        replace(one, evidence=Evidence.REPLAY, passes=60, verify_passes=60, drafted=180)
        for one in (observation(draft(3), (0.8, 0.5, 0.2), passes=60),)
    )
    world = replace(world, observations=replayed, requests=(requests(0.1, 0.01),))
    (calm,) = asked([world], OFF)
    live = [trial for trial in calm.trials if trial.by is Evidence.LIVE]
    assert live
    assert all(trial.most_token_share == 0.02 for trial in live)
    assert 0 < sum(trial.win_share for trial in live) <= 1
    burning = (Route(name="chat", tpot_limit_s=0.005),)
    (hot,) = asked([world], OFF, routes=burning)
    assert not [trial for trial in hot.trials if trial.by is Evidence.LIVE]


def test_nothing_that_cannot_gain_is_worth_a_trial() -> None:
    """A drafted position takes as long as a plain step: even all kept would gain nothing."""
    world = priced(1.0)
    slow = draft_costs(lambda rows, depth: 0.1, (1,), (1, 2, 3), Method.PROMPT_LOOKUP)
    world = replace(world, draft_costs=(*world.draft_costs, *slow))
    (found,) = asked([world], OFF, (draft(3), lookup(3)))
    assert found.trials == ()


def test_routes_fade_by_their_own_half_life() -> None:
    """An hour ago everything was kept, now nothing: who forgets faster believes less."""
    old = replace(priced(0.2), observations=(observation(draft(1), (0.9,)),), end_s=END_S - 3600)
    new = window([observation(draft(1), (0.5,), passes=100)], mixes=[mix({"chat": 1.0})])
    tokens = {}
    for half_life_s in (300.0, 360_000.0):
        options = RecommendOptions(half_life_by_route={"chat": half_life_s}, max_age_s=7200)
        (found,) = asked([old, new], OFF, (draft(1),), options=options)
        tokens[half_life_s] = found.curves[0].conditional[0].mean
    assert tokens[300.0] < 0.6 < 0.8 < tokens[360_000.0]


def test_costs_stay_bounded() -> None:
    model = CostModel.empty()
    for turn in range(3):
        costs = [
            replace(step_costs(lambda r, p: 0.01, 1, (0,))[0], context_tokens=turn * 10_000 + n)
            for n in range(3000)
        ]
        model = model.updated(window(costs=costs, end_s=END_S + 60 * turn))
    model = model.updated(window(end_s=END_S + 240))
    assert len(model.steps) <= MOST_SHAPES
    assert model.updated(window(end_s=END_S + 30 * 86_400)).steps == {}
