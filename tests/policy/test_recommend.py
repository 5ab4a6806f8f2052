"""What is recommended, on worlds where the right answer is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from collectors.records import (
    OFF,
    LatencyHistogram,
    LoadLevel,
    Method,
    Plan,
    PlanEntry,
    Route,
    Setting,
    load_level_named,
    load_level_of,
)
from policy.acceptance import AcceptanceModel
from policy.errors import InvalidInput
from policy.recommend import RecommendOptions, plan_with, recommend
from policy.types import (
    Advice,
    Evidence,
    FeatureCheck,
    LoadChange,
    PlanEdit,
    Recommendation,
    RequestObservation,
    Window,
)
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

SURVIVAL = (0.8, 0.5, 0.2)
ARMS = (draft(1), draft(2), draft(3))


def asked(
    windows: Sequence[Window],
    current: Setting | Plan = OFF,
    arms: Sequence[Setting] = ARMS,
    routes: Sequence[Route] = (Route(name="chat"),),
    now_s: float = END_S,
    options: RecommendOptions | None = None,
    edits: Sequence[PlanEdit] = (),
    features: Mapping[Setting, FeatureCheck] | None = None,
) -> tuple[Recommendation, ...]:
    plan = current if isinstance(current, Plan) else Plan(default=current)
    return recommend(
        windows,
        routes,
        plan,
        arms,
        now_s=now_s,
        generator=np.random.default_rng(0),
        options=options,
        edits=edits,
        features=features,
    )


def priced(cost: float) -> Window:
    """One row; each drafted token takes this share of a plain step, drafting included."""
    return window(
        [observation(draft(3), SURVIVAL)],
        step_costs(lambda rows, positions: 0.01 * (1 + cost * (positions - 1)), 1, range(4)),
        draft_costs(lambda rows, depth: 0.0, (1,), (1, 2, 3)),
        [mix({"chat": 1.0})],
    )


def only(recommendations: Sequence[Recommendation]) -> LoadChange:
    (one,) = recommendations
    (change,) = one.changes
    return change


@pytest.mark.parametrize(
    ("cost", "best", "speedup"),
    [(0.1, draft(3), 1.923), (0.2, draft(2), 1.643), (0.4, draft(1), 1.286), (1.0, OFF, 1.0)],
)
def test_the_best_length_follows_the_cost_of_a_token(
    cost: float, best: Setting, speedup: float
) -> None:
    """Field case F17."""
    change = only(asked([priced(cost)], OFF))
    assert change.proposed == best
    assert change.over_off.mean == pytest.approx(speedup, abs=2e-3)


def test_a_gain_of_a_third_of_a_percent_is_no_reason_to_change() -> None:
    """Field case F17: 1.923 against 1.917 is no change."""
    (found,) = asked([priced(0.1)], draft(2))
    change = only([found])
    assert (found.advice, change.proposed) == (Advice.NO_CHANGE, draft(2))
    assert change.over_off.mean == pytest.approx(1.917, abs=2e-3)
    assert change.runner_up is not None
    assert change.runner_up[0] == draft(3)
    assert change.runner_up[1] == pytest.approx(1.003, abs=1e-3)
    assert "below the 3.0% that a change of this route must bring" in change.reason


def test_speculation_that_costs_more_than_it_yields_is_switched_off() -> None:
    """Field case F17: K 1 gives 0.90."""
    (found,) = asked([priced(1.0)], draft(1))
    change = only([found])
    assert (found.advice, change.proposed) == (Advice.CHANGE, OFF)
    assert change.engine_total.minus_one.mean == pytest.approx(1 / 0.9 - 1, abs=2e-3)
    assert found.break_even_load is None
    assert "pays at no load level seen" in found.reasons[0]
    assert "0.90 of plain goodput" in found.reasons[0]


def test_one_acceptance_length_pays_alone_and_not_in_a_batch() -> None:
    """Field case F17: length 2.2 with 2.1 times at one row, 0.77 times at eight."""

    def step_s(rows: int, positions: int) -> float:
        plain = 0.01 if rows == 1 else 0.02
        slower = 2.2 / (2.1 if rows == 1 else 0.77)
        return plain * (slower if positions > rows else 1.0)

    one, eight = load_level_named("1"), load_level_named("5-8")
    survival = (0.6, 0.35, 0.25)
    world = window(
        [observation(draft(3), survival, load=load) for load in (one, eight)],
        step_costs(step_s, 1, (0, 3)) + step_costs(step_s, 8, (0, 3)),
        draft_costs(lambda rows, depth: 0.0, (1, 8), (3,)),
        [mix({"chat": 1.0}), mix({"chat": 8.0})],
    )
    (found,) = asked([world], draft(3), (draft(3),))
    alone, crowded = found.changes
    assert (alone.load, alone.proposed) == (one, draft(3))
    assert alone.over_off.mean == pytest.approx(2.1, abs=0.01)
    assert alone.tokens_per_pass.mean == pytest.approx(2.2, abs=0.01)
    assert (crowded.load, crowded.proposed) == (eight, OFF)
    assert crowded.engine_total.minus_one.mean == pytest.approx(1 / 0.77 - 1, abs=0.01)
    assert (found.advice, found.break_even_load) == (Advice.CHANGE, one)
    assert found.reasons[0].startswith("Off above the break-even: it pays up to load 1")
    assert "0.77 of plain goodput" in found.reasons[0]
    assert not any("healthy" in reason for reason in found.reasons)


def test_a_cliff_in_the_step_time_moves_the_best_length() -> None:
    """Four positions cost less than three: k 3 beats k 2 though it accepts hardly more."""
    times = {1: 1.0, 2: 2.05, 3: 2.96, 4: 1.86}
    world = window(
        [observation(draft(3), (0.9, 0.8, 0.75))],
        step_costs(lambda rows, positions: 0.03 * times[positions], 1, range(4)),
        draft_costs(lambda rows, depth: 0.001 * depth, (1,), (1, 2, 3)),
        [mix({"chat": 1.0})],
    )
    assert only(asked([world])).proposed == draft(3)


def shared_world(evidence: Evidence = Evidence.LIVE) -> Window:
    """Four rows of two routes on a flat step: an easy one and a hopeless one."""
    return window(
        [
            observation(draft(4), survival_of((0.9,) * 4), route="code", evidence=evidence),
            observation(draft(4), survival_of((0.05,) * 4), route="story", evidence=evidence),
        ],
        [
            cost
            for rows in (1, 2, 4, 8)
            for cost in step_costs(lambda r, p: 0.02 + 0.001 * p, rows, range(8))
        ],
        draft_costs(lambda rows, depth: 0.0002 * rows * depth, (1, 2, 4), (1, 2, 4)),
        [mix({"code": 2.0, "story": 2.0})],
    )


BOTH = (Route(name="code"), Route(name="story"))


def test_routes_that_share_steps_get_their_own_setting() -> None:
    code, story = asked([shared_world()], OFF, (draft(2), draft(4)), BOTH)
    assert (code.advice, only([code]).proposed) == (Advice.CHANGE, draft(4))
    assert (story.advice, only([story]).proposed) == (Advice.NO_CHANGE, OFF)
    assert code.break_even_load == load_level_named("3-4")
    assert story.break_even_load is None


def test_the_route_and_the_engine_get_a_figure_each() -> None:
    """Half the rows are the route's: its speed is its own, the engine's total counts the others."""
    code, _ = asked([shared_world()], OFF, (draft(4),), BOTH)
    change, before = only([code]), 4 / (0.02 + 0.001 * 4)
    tokens = 1 + sum(survival_of((0.9,) * 4))
    slower = (0.02 + 0.001 * 12 + 0.0002 * 2 * 4) / (0.02 + 0.001 * 4)
    assert change.token_share == pytest.approx(0.5)
    assert change.step_ratio.mean == pytest.approx(slower, rel=0.02)
    assert change.route_speed.mean == pytest.approx(tokens / slower, rel=0.02)
    assert change.engine_total.mean == pytest.approx(code.predicted_goodput["3-4"] / before)
    assert change.over_off == change.route_speed


def test_an_unobserved_setting_of_a_batch_mate_is_counted_as_staying() -> None:
    world = shared_world()
    world = replace(world, observations=world.observations[:1])
    level = load_level_named("3-4")
    plan = Plan(entries=(PlanEntry(route="story", load=level, setting=draft(4)),))
    code, story = asked([world], plan, (draft(4),), BOTH)
    assert story.advice is Advice.NOT_ENOUGH_DATA
    belief = AcceptanceModel.empty().updated(world).posterior("story", draft(4))
    tokens = 2 * (1 + sum(survival_of((0.9,) * 4))) + 2 * float(belief.tokens_per_pass()[4])
    seconds = 0.02 + 0.001 * 20 + 0.0002 * 4 * 4
    assert code.predicted_goodput["3-4"] == pytest.approx(tokens / seconds, rel=0.03)


def test_predicted_goodput_is_that_of_the_whole_step() -> None:
    code, story = asked([shared_world()], OFF, (draft(4),), BOTH)
    tokens = 2 * (1 + sum(survival_of((0.9,) * 4))) + 2
    seconds = 0.02 + 0.001 * (2 * 5 + 2) + 0.0002 * 2 * 4
    expected = pytest.approx(tokens / seconds, rel=0.02)
    assert code.predicted_goodput["3-4"] == expected
    assert story.predicted_goodput == code.predicted_goodput


def test_predicted_goodput_has_an_interval_around_it() -> None:
    code, story = asked([shared_world()], OFF, (draft(4),), BOTH)
    found = only([code]).goodput
    assert found is not None
    assert found.mean == code.predicted_goodput["3-4"]
    assert 0.8 * found.mean < found.low < found.mean < found.high < 1.2 * found.mean
    assert only([story]).goodput is not None


def test_a_gain_that_counts_on_other_routes_says_so() -> None:
    routes = [Route(name=name) for name in "abcd"]
    world = window(
        [observation(draft(3), survival_of((0.9,) * 3), route=route.name) for route in routes],
        [c for rows in (1, 2, 4, 8) for c in step_costs(lambda r, p: 0.05, rows, range(8))],
        draft_costs(lambda rows, depth: 0.015 * depth, (1, 2, 4), (1, 2, 3)),
        [mix({route.name: 1.0 for route in routes})],
    )
    for found in asked([world], OFF, (draft(3),), routes):
        change = only([found])
        assert found.advice is Advice.CHANGE
        assert change.needs_set
        assert change.engine_total.mean < 1.03
        assert change.joint is not None
        assert change.joint.routes == ("a", "b", "c", "d")
        assert change.joint.engine_total.low > 1
        assert any("only if the changes of a and b and c and d" in one for one in found.reasons)


def test_a_method_never_seen_on_a_route_is_not_evaluable_and_named() -> None:
    world = replace(priced(0.2), observations=())
    (found,) = asked([world], OFF, (*ARMS, lookup(3)))
    assert found.advice is Advice.NOT_ENOUGH_DATA
    assert found.changes == ()
    wishes = " ".join(found.would_change_mind)
    assert "replay of draft_model with k 1, 2, 3 on chat: not evaluable" in wishes
    assert "replay of prompt_lookup with k 3 on chat: not evaluable" in wishes


def test_evidence_from_another_route_does_not_make_a_method_evaluable() -> None:
    world = shared_world()
    world = replace(world, observations=world.observations[:1])
    code, story = asked([world], OFF, (draft(4),), BOTH)
    assert code.advice is Advice.CHANGE
    assert story.advice is Advice.NOT_ENOUGH_DATA


def test_a_length_beyond_the_evidence_is_not_proposed() -> None:
    costs = step_costs(lambda rows, positions: 0.01, 1, range(9))
    drafts = draft_costs(lambda rows, depth: 0.0, (1,), range(1, 9))
    world = window([observation(draft(3), (0.9, 0.85, 0.8))], costs, drafts, [mix({"chat": 1.0})])
    (found,) = asked([world], OFF, (draft(3), draft(8)))
    assert only([found]).proposed == draft(3)
    assert any("draft_model with k 8" in wish for wish in found.would_change_mind)


def test_a_replay_makes_a_method_evaluable() -> None:
    code, _ = asked([shared_world(Evidence.REPLAY)], OFF, (draft(4),), BOTH)
    assert code.advice is Advice.CHANGE
    assert code.curves[0].evidence == (Evidence.REPLAY,)


def test_a_batch_size_at_which_speculation_was_never_timed_gets_no_answer() -> None:
    """Acceptance is known from single rows; steps of 32 rows were only timed without drafts."""
    flat = [
        cost
        for rows, depths in ((1, (0, 1, 2, 3)), (16, (0,)), (32, (0,)))
        for cost in step_costs(lambda r, p: 0.01 + 0.0001 * p, rows, depths)
    ]
    drafts = draft_costs(lambda rows, depth: 0.001 * depth, (1, 32), (1, 2, 3))
    seen = [observation(draft(3), SURVIVAL)]
    world = window(seen, flat, drafts, [mix({"chat": 1.0}), mix({"chat": 32.0})])
    (found,) = asked([world], OFF, (draft(3),))
    assert [change.load.label for change in found.changes] == ["1"]
    assert any(
        "At load 17-32 there is no answer: only the step time of off" in r for r in found.reasons
    )


def test_where_a_change_alone_was_never_timed_all_changes_are_compared_together() -> None:
    """All rows draft at a loss; with one route off the step has a size between the measured."""
    hopeless = survival_of((0.05,) * 3)
    world = window(
        [
            observation(setting, hopeless, route=name, load=load_level_of(24))
            for name in ("chat", "story")
            for setting in (draft(3), lookup(1))
        ],
        [
            replace(cost, positions=size, total_s=0.4 * size, total_square_s2=0.0008 * size**2)
            for size in (24, 26, 94, 96)
            for cost in step_costs(lambda r, p: 0.0, 24, (0,))
        ],
        [
            *draft_costs(lambda rows, depth: 0.02 * depth, (24,), (3,)),
            *draft_costs(lambda rows, depth: 0.0, (24,), (1,), Method.PROMPT_LOOKUP),
        ],
        [mix({"chat": 12.0, "story": 12.0})],
    )
    routes = (Route(name="chat"), Route(name="story"))
    old = 24 * (1 + sum(hopeless)) / (0.002 * 96 + 0.06)
    for found in asked([world], draft(3), (draft(3), lookup(1)), routes):
        change = only([found])
        assert (found.advice, change.proposed) == (Advice.CHANGE, OFF)
        assert change.engine_total.minus_one.mean == pytest.approx(
            24 / (0.002 * 24) / old - 1, rel=0.02
        )
        assert change.over_off.mean == pytest.approx(1.0)


def test_a_setting_in_force_that_was_not_observed_gets_no_answer() -> None:
    (found,) = asked([replace(priced(0.2), observations=())], draft(2))
    assert found.advice is Advice.NOT_ENOUGH_DATA
    assert any(
        "draft_model k=2 is in force and was not observed enough lately" in r for r in found.reasons
    )


def test_a_handful_of_passes_is_too_little_to_change_for() -> None:
    """12 of 40 first drafts accepted: it may pay, and it may not."""
    world = replace(priced(0.25), observations=(observation(draft(1), (0.3,), passes=40),))
    (found,) = asked([world], OFF, (draft(1),))
    assert found.advice is Advice.NO_CHANGE
    assert only([found]).proposed == OFF


def test_a_stale_observation_leaves_everything_as_it_is() -> None:
    (found,) = asked([priced(0.2)], OFF, now_s=END_S + 7200)
    assert found.advice is Advice.NOT_ENOUGH_DATA
    assert "newest observation is 7200 s old" in found.reasons[0]


def test_nothing_observed_is_no_data() -> None:
    assert [r.advice for r in asked([], routes=BOTH)] == [Advice.NOT_ENOUGH_DATA] * 2
    assert asked([window()])[0].advice is Advice.NOT_ENOUGH_DATA


def test_a_route_without_rows_is_no_data() -> None:
    found = asked([priced(0.2)], OFF, ARMS, (Route(name="chat"), Route(name="idle")))
    assert [r.advice for r in found] == [Advice.CHANGE, Advice.NOT_ENOUGH_DATA]


def test_too_few_steps_at_a_load_level_are_named() -> None:
    world = priced(0.2)
    world = replace(world, mixes=(replace(world.mixes[0], steps=5),))
    (found,) = asked([world])
    assert found.advice is Advice.NOT_ENOUGH_DATA
    assert "5 recent steps are fewer than 20" in found.reasons[0]


def test_impossible_observations_are_left_out_and_counted() -> None:
    world = priced(0.2)
    bad = replace(world.observations[0], accepts=(9, 9, 9))
    (found,) = asked([replace(world, observations=(*world.observations, bad))])
    assert only([found]).proposed == draft(2)
    assert found.reasons[-1].startswith("1 impossible observations were left out")


def requests(
    ttft_s: float, tpot_s: float, route: str = "chat", load: LoadLevel | None = None
) -> RequestObservation:
    samples = LatencyHistogram.of([tpot_s] * 50)
    return RequestObservation(
        route=route,
        setting=OFF,
        load=load or load_level_named("1"),
        requests=50,
        completion_tokens=5000,
        decode_s=5000 * tpot_s,
        ttft=LatencyHistogram.of([ttft_s] * 50),
        chunk_gaps=samples,
        tpot=samples,
    )


def test_a_limit_on_the_time_per_token_bounds_what_batch_mates_may_cost() -> None:
    """Off, a step takes 24 ms; its mate's longest drafts would take the hopeless route beyond."""
    free = asked([shared_world()], OFF, (draft(4),), BOTH)
    assert only(free[:1]).proposed == draft(4)
    tight = (Route(name="code"), Route(name="story", tpot_limit_s=0.030))
    bound = asked([shared_world()], OFF, (draft(2), draft(4)), tight)
    assert only(bound[:1]).proposed == draft(2)


def test_a_limit_on_the_first_token_bounds_the_step() -> None:
    slow = priced(0.2)
    held = replace(slow, requests=(requests(0.0995, 0.01),))
    strict = (Route(name="chat", ttft_limit_s=0.104),)
    assert only(asked([held], OFF, ARMS, (Route(name="chat"),))).proposed == draft(2)
    assert only(asked([held], OFF, ARMS, strict)).proposed == draft(1)


def test_nothing_unproven_is_tried_on_a_route_that_breaks_its_limits() -> None:
    world = priced(0.2)
    replayed = tuple(replace(o, evidence=Evidence.REPLAY) for o in world.observations)
    burning = replace(world, observations=replayed, requests=(requests(0.1, 0.01),))
    route = (Route(name="chat", tpot_limit_s=0.005),)
    (found,) = asked([burning], OFF, ARMS, route)
    assert found.advice is Advice.NO_CHANGE
    assert "never seen on live traffic" in only([found]).reason
    live = replace(burning, observations=world.observations)
    assert only(asked([live], OFF, ARMS, route)).proposed == draft(2)


def test_where_the_best_is_refused_off_is_tried_before_staying() -> None:
    """In force is worse than off; the best was only replayed, and the route breaks its limits."""
    world = priced(0.4)
    seen = (
        observation(draft(3), (0.1, 0.0, 0.0)),
        observation(lookup(3), (0.9, 0.8, 0.7), evidence=Evidence.REPLAY),
    )
    free = draft_costs(lambda rows, depth: 0.0, (1,), (1, 2, 3), Method.PROMPT_LOOKUP)
    world = replace(
        world,
        observations=seen,
        draft_costs=(*world.draft_costs, *free),
        requests=(requests(0.1, 0.02),),
    )
    arms = (draft(3), lookup(3))
    assert only(asked([world], draft(3), arms)).proposed == lookup(3)
    strict = (Route(name="chat", tpot_limit_s=0.005),)
    change = only(asked([world], draft(3), arms, strict))
    assert change.proposed == OFF
    assert change.engine_total.mean > 1.5


def test_the_same_question_has_the_same_answer() -> None:
    assert asked([shared_world()], routes=BOTH) == asked([shared_world()], routes=BOTH)
    two = [replace(priced(0.2), end_s=END_S - 60), priced(0.2)]
    assert asked(two) == asked(two[::-1])


def test_the_answer_shows_the_costs_and_curves_it_used() -> None:
    (found,) = asked([priced(0.2)], OFF)
    assert [(rows, positions) for rows, positions, _ in found.cost_rows] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 4),
    ]
    assert found.curves[0].method is Method.DRAFT_MODEL
    assert [i.mean for i in found.curves[0].conditional] == pytest.approx(
        [0.8, 0.625, 0.4], abs=0.01
    )


def test_what_would_change_its_mind_is_a_number_that_does() -> None:
    (found,) = asked([priced(0.4)], OFF)
    (wish,) = found.would_change_mind
    assert "falling from 1.80 to below 1.40 tokens a pass" in wish
    at_the_point = replace(priced(0.4), observations=(observation(draft(1), (0.40,)),))
    assert only(asked([at_the_point], OFF, (draft(1),))).proposed == OFF


def test_the_approved_plan_differs_in_one_route_only() -> None:
    code, story = asked([shared_world()], OFF, (draft(4),), BOTH)
    level = load_level_named("3-4")
    other = PlanEntry(route="story", load=level, setting=lookup(3))
    plan = plan_with(Plan(version=6, entries=(other,)), code)
    assert (plan.version, plan.setting_for("code", level)) == (7, draft(4))
    assert plan.setting_for("story", level) == lookup(3)
    assert plan.setting_for("code", load_level_named("1")) == OFF
    assert plan_with(plan, story) is plan
    again = plan_with(plan, code)
    assert len(again.entries) == len(plan.entries)


def test_a_time_that_is_none_is_named() -> None:
    with pytest.raises(InvalidInput, match="now_s must be a time in Unix seconds, got nan"):
        asked([priced(0.2)], now_s=math.nan)
    with pytest.raises(InvalidInput, match="min_gain must be 0 or more, got -1"):
        RecommendOptions(min_gain=-1)
    with pytest.raises(InvalidInput, match="num_draws must be 2 or more, got 1"):
        RecommendOptions(num_draws=1)
