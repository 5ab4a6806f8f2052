"""The search against every plan there is, and its work."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.records import LOAD_LEVELS, OFF, Method, Plan, Route, Setting
from policy.goodput import Batch, picked, rates, scores_of, step_seconds
from policy.knowledge import Knowledge, Mix, Venture
from policy.options import RecommendOptions
from policy.planner import best_plan, single_changes
from policy.recommend import learn
from policy.scenes import lone_batch, shared_batch, step_bounds
from policy.statistics import Ints
from policy.types import StepCost
from policy.verdicts import Case
from tests.fixtures.work import lines_run
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

ARMS = (draft(1), draft(2), draft(4), draft(7), lookup(3), lookup(7))
LEVELS = (1.0, 2.0, 3.6, 6.4, 12.0, 24.0, 48.0, 100.0)


def step_s(rows: int, positions: int) -> float:
    return 0.05 * (1 + 0.0008 * min(positions, 96) + 0.009 * max(0, positions - 96))


def draft_s(rows: int, depth: int) -> float:
    return 0.05 * depth * (0.05 + 0.0005 * rows)


def lookup_s(rows: int, depth: int) -> float:
    return 1e-4 * rows


def case_of(
    seed: int,
    num_routes: int,
    levels: tuple[float, ...],
    arms: tuple[Setting, ...] = ARMS,
    limit_s: float | None = None,
) -> Case:
    """Learn a world whose acceptance is drawn from the seed."""
    rng = np.random.default_rng(seed)
    routes = [f"route{index}" for index in range(num_routes)]
    seen, deepest = [], max(arm.k for arm in arms)
    for route in routes:
        for arm, share in ((draft(deepest), 1.0), (lookup(deepest), rng.uniform(0.05, 0.8))):
            hazards = (rng.uniform(0.2, 0.95) * 0.97 ** np.arange(deepest)).tolist()
            seen.append(observation(arm, survival_of(hazards), route=route, coverage=share))
    rows = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100)
    mixes = [
        mix({name: float(part) for name, part in zip(routes, parts, strict=True)})
        for parts in (rng.dirichlet(np.ones(num_routes)) * level for level in levels)
    ]
    known = window(
        seen,
        [cost for count in rows for cost in step_costs(step_s, count, range(11))],
        draft_costs(draft_s, rows[::2], range(1, 11))
        + draft_costs(lookup_s, rows[::2], range(1, 11), Method.PROMPT_LOOKUP),
        mixes,
    )
    return learn(
        [known],
        [Route(name=name, tpot_limit_s=limit_s) for name in routes],
        Plan(),
        arms,
        now_s=END_S,
        generator=np.random.default_rng(0),
        options=RecommendOptions(),
    )


def shared(case: Case) -> Batch:
    batch = shared_batch(case.knowledge, case.mixes, case.routes)
    assert batch is not None
    return batch


def best_of_all(batch: Batch, scene: int) -> float:
    every = np.array(list(itertools.product(range(len(batch.arms)), repeat=batch.rows.shape[1])))
    return float(scores_of(batch, np.full(len(every), scene), every).max())


def all_off(batch: Batch) -> Ints:
    return np.zeros(batch.rows.shape, dtype=np.intp)


@pytest.mark.parametrize("limit_s", [None, 0.058])
@pytest.mark.parametrize("seed", range(6))
def test_the_plan_is_within_a_percent_of_the_best_of_all_plans(
    seed: int, limit_s: float | None
) -> None:
    batch = shared(case_of(seed, 4, (3.6, 12.0, 48.0), limit_s=limit_s))
    plan = best_plan(batch, all_off(batch))
    found = scores_of(batch, np.arange(batch.num_scenes), plan)
    for scene in range(batch.num_scenes):
        assert found[scene] >= 0.99 * best_of_all(batch, scene)


@given(seed=st.integers(0, 10_000), start=st.integers(0, 6))
@settings(max_examples=15, deadline=None)
def test_the_plan_is_never_worse_than_what_is_in_force_or_off(seed: int, start: int) -> None:
    batch = shared(case_of(seed, 5, (6.4, 100.0)))
    current = np.full(batch.rows.shape, start)
    scenes = np.arange(batch.num_scenes)
    found = rates(batch, scenes, best_plan(batch, current)).goodput
    for base in (current, all_off(batch)):
        assert (found >= rates(batch, scenes, base).goodput * (1 - 1e-12)).all()


@pytest.mark.parametrize("limit_s", [None, 0.06])
def test_every_single_change_is_rated_as_if_it_were_made(limit_s: float | None) -> None:
    batch = shared(case_of(3, 4, (6.4, 48.0), limit_s=limit_s))
    choice = np.array([[0, 2, 5, 3], [1, 1, 4, 0]])
    scenes = np.arange(2)
    scores = single_changes(batch, scenes, choice)
    for route, arm in itertools.product(range(4), range(len(batch.arms))):
        changed = choice.copy()
        changed[:, route] = arm
        assert scores[:, route, arm] == pytest.approx(scores_of(batch, scenes, changed))


@pytest.mark.parametrize("limit_s", [0.055, 0.07])
def test_a_limit_that_can_be_kept_is_kept(limit_s: float) -> None:
    batch = shared(case_of(3, 4, (6.4, 48.0), limit_s=limit_s))
    scenes = np.arange(2)
    for start in range(len(batch.arms)):
        plan = best_plan(batch, np.full(batch.rows.shape, start))
        longest = picked(batch.limit_s, scenes, plan).min(axis=1)
        assert (step_seconds(batch, scenes, plan) <= longest * (1 + 1e-9)).all()


def test_with_nothing_but_off_to_choose_everything_is_off() -> None:
    batch = shared(case_of(2, 3, (6.4,)))
    only = {name: getattr(batch, name)[:1] for name in ("arms", "method", "depth", "family")}
    by_arm = ("allowed", "tokens", "positions", "own_s", "limit_s")
    only |= {name: getattr(batch, name)[:, :, :1] for name in by_arm}
    plan = best_plan(replace(batch, **only), all_off(batch))
    assert plan.tolist() == [[0, 0, 0]]


def test_routes_that_pay_only_together_are_found() -> None:
    """One route alone cannot carry a dear draft model; all four can."""
    survival = survival_of((0.9, 0.9, 0.9))
    routes = ("a", "b", "c", "d")
    known = window(
        [observation(draft(3), survival, route=route) for route in routes],
        [c for rows in (1, 2, 4, 8) for c in step_costs(lambda r, p: 0.05, rows, range(8))],
        draft_costs(lambda rows, depth: 0.015 * depth, (1, 2, 4, 8), (1, 2, 3)),
        [mix(dict.fromkeys(routes, 1.0))],
    )
    case = learn(
        [known],
        [Route(name=route) for route in routes],
        Plan(),
        (draft(3),),
        now_s=END_S,
        generator=np.random.default_rng(0),
        options=RecommendOptions(),
    )
    batch = shared(case)
    off = all_off(batch)
    assert (
        single_changes(batch, np.array([0]), off)[0, :, 1]
        < rates(batch, np.array([0]), off).goodput[0]
    ).all()
    assert (best_plan(batch, off) == 1).all()


def test_a_single_row_is_planned_by_its_latency() -> None:
    case = case_of(1, 3, (1.0,))
    batch = lone_batch(case.knowledge, case.mixes, case.routes)
    assert batch is not None
    plan = best_plan(batch, all_off(batch))
    for scene in range(batch.num_scenes):
        assert rates(batch, np.array([scene]), plan[[scene]]).goodput[0] == pytest.approx(
            best_of_all(batch, scene)
        )


def test_a_single_row_takes_the_mean_of_times_and_not_the_time_of_the_mean() -> None:
    """Half the passes find a draft: half the steps compute one position, half five."""
    seen = observation(lookup(4), survival_of((0.5,) * 4), coverage=0.5)

    def staircase_s(rows: int, positions: int) -> float:
        return {1: 1.0, 2: 9.0, 3: 9.0, 4: 9.0, 5: 2.0}[positions]

    known = window(
        [seen],
        step_costs(staircase_s, 1, range(5)),
        draft_costs(lambda rows, depth: 0.0, (1,), (4,), Method.PROMPT_LOOKUP),
        [mix({"chat": 1.0})],
    )
    case = learn(
        [known],
        [Route(name="chat")],
        Plan(),
        (lookup(4),),
        now_s=END_S,
        generator=np.random.default_rng(0),
        options=RecommendOptions(),
    )
    batch = lone_batch(case.knowledge, case.mixes, case.routes)
    assert batch is not None
    assert batch.own_s[0, 0] == pytest.approx([1.0, 1.5], abs=0.01)


def test_plain_decoding_keeps_its_measured_time_where_routes_share_steps() -> None:
    """A cliff right after it must not leak into the time of off."""
    times = {4: 0.03, 8: 0.06, 12: 0.06, 16: 0.05, 20: 0.07}
    known = window(
        [observation(draft(4), (0.5,) * 4, route=route) for route in "ab"],
        step_costs(lambda rows, positions: times[positions], 4, range(5)),
        draft_costs(lambda rows, depth: 0.0, (4,), (4,)),
        [mix({"a": 2.0, "b": 2.0})],
    )
    case = learn(
        [known],
        [Route(name="a"), Route(name="b")],
        Plan(),
        (draft(4),),
        now_s=END_S,
        generator=np.random.default_rng(0),
        options=RecommendOptions(),
    )
    batch = shared(case)
    assert step_seconds(batch, np.array([0]), all_off(batch))[0] == pytest.approx(0.03)


def test_a_decision_for_fifty_routes_takes_few_lines() -> None:
    """5 ms at p99 in `spectuner bench policy`; what keeps it there is counted here."""
    arms = (*ARMS, draft(3), draft(5), lookup(2), lookup(4), lookup(10))
    case = case_of(7, 50, LEVELS, arms)
    lone = lone_batch(case.knowledge, case.mixes, case.routes)
    batch = shared(case)
    assert lone is not None
    assert len(batch.arms) == 12

    def decide() -> None:
        best_plan(lone, all_off(lone))
        best_plan(batch, all_off(batch))

    assert lines_run(decide) < 5_000


def test_what_has_no_cost_is_never_planned() -> None:
    case = case_of(2, 2, (6.4,), (*ARMS, draft(16)))
    batch = shared(case)
    plan = best_plan(batch, all_off(batch))
    assert draft(16) not in {batch.arms[arm] for arm in plan.ravel()}


def test_a_level_without_a_measured_plain_step_has_no_scene() -> None:
    case = case_of(2, 2, (6.4,))
    huge = Mix(
        load=case.mixes[0].load, steps=1e3, rows_by_route={"route0": 900.0}, context_tokens=512
    )
    assert shared_batch(case.knowledge, [huge], case.routes) is None
    assert lone_batch(case.knowledge, [huge], case.routes) is None


def test_off_is_always_known_and_first() -> None:
    knowledge: Knowledge = case_of(2, 2, (6.4,)).knowledge
    assert knowledge.arms[0] == OFF
    assert knowledge.has_evidence("never seen", OFF)
    assert not knowledge.has_evidence("never seen", draft(1))


def measured_case(costs: list[StepCost]) -> Case:
    return learn(
        [window([observation(draft(4), (0.5,) * 4, route=r) for r in "ab"], costs)],
        [Route(name=name) for name in "ab"],
        Plan(),
        (draft(4),),
        now_s=END_S,
        generator=np.random.default_rng(0),
        options=RecommendOptions(),
    )


def test_a_step_may_take_longer_only_where_it_was_not_measured() -> None:
    """In proportion to positions beyond what was measured, and never more than a larger step."""
    times = {8: 0.02, 16: 0.021, 24: 0.024}
    knowledge = measured_case(step_costs(lambda r, p: times[p], 8, (0, 1, 2))).knowledge
    knowledge = replace(knowledge, venture=Venture())
    held = Mix(
        load=LOAD_LEVELS[3], steps=1.0, rows_by_route={"a": 4.0, "b": 4.0}, context_tokens=4096.0
    )
    bounds = step_bounds(knowledge, held)
    positions = np.linspace(8, 40, len(bounds.most_s))
    most_s = dict(zip(positions.tolist(), bounds.most_s.tolist(), strict=True))
    assert bounds.least_off_s == pytest.approx(0.02)
    assert most_s[8.0] == pytest.approx(0.02, rel=0.01)
    assert most_s[12.0] == pytest.approx(0.021, rel=0.02)
    assert most_s[24.0] == pytest.approx(0.024, rel=0.03)
    assert most_s[36.0] == pytest.approx(0.024 * 1.5, rel=0.05)
    assert (np.diff(bounds.most_s) > -1e-12).all()


@pytest.mark.parametrize(("rows", "least_s"), [(10.0, 0.02), (4.0, 0.9 * 0.01)])
def test_plain_steps_are_bounded_by_the_nearest_one_measured(rows: float, least_s: float) -> None:
    """No faster than a smaller one, nor much less than in proportion to a larger one."""
    knowledge = measured_case(step_costs(lambda r, p: 0.02, 8, (0, 1, 2))).knowledge
    knowledge = replace(knowledge, venture=Venture())
    held = Mix(
        load=LOAD_LEVELS[3],
        steps=1.0,
        rows_by_route={"a": rows / 2, "b": rows / 2},
        context_tokens=4096.0,
    )
    assert step_bounds(knowledge, held).least_off_s == pytest.approx(least_s, rel=0.01)
