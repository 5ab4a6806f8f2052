"""The decision at each load level: plan, judge, and say what stands behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collectors.records import LoadLevel, Plan, Route, Setting
from policy.budgets import EditBudget
from policy.effects import Stage
from policy.explain import runner_up_reason
from policy.explore import trials
from policy.goodput import Batch, step_seconds
from policy.guardrails import Backing
from policy.knowledge import Knowledge, Latency, Mix
from policy.lasting import LastingBelief, one_scene
from policy.objective import with_objective
from policy.options import RecommendOptions
from policy.pools import pool_advice
from policy.regimes import Regimes
from policy.scenes import lone_batch, shared_batch
from policy.settle import (
    BackingOf,
    Settled,
    best_speedup,
    load_change,
    settle,
    with_arm,
)
from policy.statistics import Floats, Ints
from policy.summary import Verdict
from policy.switching import LEAST_LOST_S, SwitchCost
from policy.types import Evidence, Interval, Trial
from policy.weighing import Weighing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """All that a decision is made from.

    Attributes:
        knowledge: acceptance and cost.
        mixes: what a step holds, by load level.
        latencies: how requests did, by route and load level.
        routes: the routes that want an answer, by name.
        current: the plan in force.
        options: how cautious to be.
        generator: source of the posterior draws.
        ignored: observations left out, and why.
        regimes: the behaviours of each route.
        budget: changes of the plan that are left.
        now_s: the present, Unix seconds.
        switching: what changes of Settings cost.
    """

    knowledge: Knowledge
    mixes: tuple[Mix, ...]
    latencies: Mapping[tuple[str, LoadLevel], Latency]
    routes: Mapping[str, Route]
    current: Plan
    options: RecommendOptions
    generator: np.random.Generator
    ignored: tuple[str, ...]
    regimes: Regimes
    budget: EditBudget
    now_s: float
    switching: SwitchCost


def verdicts(case: Case) -> Iterator[Verdict]:
    """Decide every load level, and say why not where there is too little to decide on."""
    enough = [mix for mix in case.mixes if mix.steps >= case.options.min_steps]
    answered = set()
    for batch in (
        lone_batch(case.knowledge, enough, case.routes),
        shared_batch(case.knowledge, enough, case.routes),
    ):
        if batch is not None:
            answered |= set(batch.loads)
            yield from _batch_verdicts(case, batch)
    for mix in case.mixes:
        if mix.load not in answered:
            yield from _unanswered(case, mix)


def _unanswered(case: Case, mix: Mix) -> Iterator[Verdict]:
    why = "the time of a step without speculation was never measured near its batch size"
    if mix.steps < case.options.min_steps:
        why = f"{mix.steps:.0f} recent steps are fewer than {case.options.min_steps:.0f}"
    for name in mix.rows_by_route:
        yield Verdict(route=name, load=mix.load, why_not=why)


def _batch_verdicts(case: Case, batch: Batch) -> Iterator[Verdict]:
    current = _in_force(case, batch)
    batch = _with_first_token_limits(case, _pinned(case, batch, current), current)
    batch = with_objective(batch, case.options.objective)
    noise = case.generator.standard_normal(case.options.num_draws)
    for scene in range(batch.num_scenes):
        lone, held = one_scene(batch, scene), _mix(case, batch.loads[scene]).context_tokens
        belief = LastingBelief(case.regimes, case.knowledge, lone, held)
        stage = Stage(
            batch=batch,
            scene=scene,
            draws=belief.draws(case.generator, case.options.num_draws, is_next=False),
            noise=noise,
            error_ratio=_errors(case, batch, scene),
        )
        yield from _scene_verdicts(case, stage, belief, current[scene])


def _in_force(case: Case, batch: Batch) -> Ints:
    number = {arm: index for index, arm in enumerate(batch.arms)}
    return np.array(
        [
            [number[case.current.setting_for(name, load)] for name in names]
            for load, names in zip(batch.loads, batch.routes, strict=True)
        ]
    )


def _pinned(case: Case, batch: Batch, current: Ints) -> Batch:
    """Leave only what is in force to routes not asked about, and where that was never observed."""
    allowed = batch.allowed.copy()
    for scene, names in enumerate(batch.routes):
        for route, name in enumerate(names):
            arm = current[scene, route]
            if name not in case.routes or not allowed[scene, route, arm]:
                allowed[scene, route] = False
                allowed[scene, route, arm] = True
    return replace(batch, allowed=allowed)


def _with_first_token_limits(case: Case, batch: Batch, current: Ints) -> Batch:
    """Bound the step time where a longer step would push the first token over a route's limit.

    Where the limit is broken already the step is not to blame: first tokens wait in the queue.
    """
    now_s = step_seconds(batch, np.arange(batch.num_scenes), current)
    limit_s = batch.limit_s.copy()
    for scene, (load, names) in enumerate(zip(batch.loads, batch.routes, strict=True)):
        for route, name in enumerate(names):
            slack_s = _first_token_slack_s(case, name, load)
            if slack_s is not None and slack_s > 0:
                longest = float(now_s[scene]) + slack_s
                limit_s[scene, route] = np.minimum(limit_s[scene, route], longest)
    return replace(batch, limit_s=limit_s)


def _first_token_slack_s(case: Case, name: str, load: LoadLevel) -> float | None:
    seen, route = case.latencies.get((name, load)), case.routes.get(name)
    high_s = seen.high_ttft_s if seen else None
    if high_s is None or route is None or route.ttft_limit_s is None:
        return None
    return route.ttft_limit_s - high_s


def _mix(case: Case, load: LoadLevel) -> Mix:
    return next(mix for mix in case.mixes if mix.load == load)


def _errors(case: Case, batch: Batch, scene: int) -> Floats:
    """Return the relative error of the step time, by route and the arm it would have; [R, A]."""
    mix = _mix(case, batch.loads[scene])
    rows = 1.0 if mix.is_lone else mix.rows
    lengths = _lengths(batch, scene)
    by_length = {
        length: case.knowledge.cost.step_error_ratio(rows, rows * (1 + length), mix.context_tokens)
        for length in np.unique(lengths).tolist()
    }
    return np.array([[by_length[length] for length in route] for route in lengths.tolist()])


def _lengths(batch: Batch, scene: int) -> Ints:
    """Return the draft length of each arm on each route, of adaptive ones the mean; [R, A]."""
    rows = np.where(batch.rows[scene] > 0, batch.rows[scene], np.inf)[:, None]
    drafted = np.rint(np.maximum(batch.positions[scene] / rows - 1, 0)).astype(np.intp)
    return np.where([arm.is_adaptive for arm in batch.arms], drafted, batch.depth)


def _scene_verdicts(
    case: Case, stage: Stage, belief: LastingBelief, current: Ints
) -> Iterator[Verdict]:
    batch, load = stage.batch, stage.batch.loads[stage.scene]
    present = [
        route
        for route, name in enumerate(batch.routes[stage.scene])
        if batch.rows[stage.scene, route] > 0 and name in case.routes
    ]
    if not stage.is_known(current):
        why = "no step like those of the plan in force was measured"
        for route in present:
            yield Verdict(route=batch.routes[stage.scene][route], load=load, why_not=why)
        return
    found = _weighed(case, stage, belief, current)
    frozen = _frozen(case, stage, present) if found.is_safe(current) else {}
    proposed = found.moved(current, found.improved(current, set(frozen)))
    backing_of = _backing_of(case, stage, current, found)
    settled = settle(stage, current, proposed, backing_of)
    movable = [r for r in present if stage.batch.allowed[stage.scene, r].sum() > 1]
    advice = pool_advice(stage, settled.plan, movable, case.options)
    for route in present:
        verdict = _verdict(case, stage, current, settled, route)
        verdict = replace(
            _with_loss(verdict, case, stage, current, route),
            trials=_trials(case, stage, settled.plan, route),
            pool=advice if advice and verdict.route in advice.leaves else None,
        )
        yield _with_runner_up(verdict, stage, current, settled.plan, route, backing_of, frozen)


def _weighed(case: Case, stage: Stage, belief: LastingBelief, current: Ints) -> Weighing:
    batch, names = one_scene(stage.batch, stage.scene), stage.batch.routes[stage.scene]
    running = {name: batch.arms[arm] for name, arm in zip(names, current, strict=True)}
    context_tokens = _mix(case, batch.loads[0]).context_tokens
    charge = case.switching.charge(batch, running, context_tokens)
    return Weighing(batch, belief, case.generator, case.options.as_control(), charge=charge)


def _with_loss(verdict: Verdict, case: Case, stage: Stage, current: Ints, route: int) -> Verdict:
    """Add what the change itself loses, and in what time it earns that back."""
    change, rows = verdict.change, stage.batch.rows[stage.scene]
    if change is None or not verdict.is_change:
        return verdict
    share = float(rows[route] / rows.sum())
    context_tokens = _mix(case, verdict.load).context_tokens
    lost_s = case.switching.lost_s(change.current, change.proposed, share, context_tokens)
    now = stage.rates(current)
    gained = change.gain.mean * float(now.by_route[0, route] / now.goodput[0])
    if not (lost_s > LEAST_LOST_S and gained > 0):
        return verdict
    return replace(verdict, change=replace(change, lost_s=lost_s), payback_s=lost_s / gained)


def _trials(case: Case, stage: Stage, plan: Ints, route: int) -> tuple[Trial, ...]:
    name = stage.batch.routes[stage.scene][route]
    seen = case.latencies.get((name, stage.batch.loads[stage.scene]))
    burn_ratio = seen.burn_ratio(case.routes[name]) if seen else None
    found = trials(
        stage,
        plan,
        route,
        knowledge=case.knowledge,
        options=case.options,
        burn_ratio=burn_ratio,
    )
    return tuple(found)


def _with_runner_up(
    verdict: Verdict,
    stage: Stage,
    current: Ints,
    plan: Ints,
    route: int,
    backing_of: BackingOf,
    frozen: Mapping[int, str],
) -> Verdict:
    """Add why the second best Setting is not proposed; first of all, since it may not change."""
    change = verdict.change
    if change is None or change.runner_up is None:
        return verdict
    arm = stage.batch.arms.index(change.runner_up[0])
    why = frozen.get(route) if arm != current[route] else None
    if why is None and verdict.refusal is not None and verdict.refusal[0] == change.runner_up[0]:
        why = verdict.refusal[1]
    if why is None:
        why = runner_up_reason(stage, plan, current, route, arm, backing_of)
    return replace(verdict, change=replace(change, runner_up_reason=why))


def _frozen(case: Case, stage: Stage, routes: Sequence[int]) -> dict[int, str]:
    """Return the routes whose entry changed too often lately, and the sentence that says so."""
    names, load = stage.batch.routes[stage.scene], stage.batch.loads[stage.scene]
    return {
        route: f"its Setting changed {case.options.granted_changes:.0f} times lately, and an entry "
        f"earns another change in {case.options.seconds_per_change:.0f} s"
        for route in routes
        if not case.budget.has(names[route], load, case.now_s)
    }


def _backing_of(case: Case, stage: Stage, current: Ints, found: Weighing) -> BackingOf:
    load = stage.batch.loads[stage.scene]

    def backing(plan: Ints, route: int, joint_gain: Interval | None) -> Backing:
        name, arm = stage.batch.routes[stage.scene][route], stage.batch.arms[plan[route]]
        limits, seen = case.routes[name], case.latencies.get((name, load))
        return Backing(
            depth=case.knowledge.depth(name, arm, load),
            is_live=Evidence.LIVE in case.knowledge.acceptance.evidence(name, arm),
            is_cost_known=stage.is_known(plan),
            joint_gain=joint_gain,
            low_over_off=found.over_off(plan),
            least_over_off=case.options.least_over_off,
            min_gain=case.options.min_gain,
            tpot_s=stage.tpot_s(plan, route),
            current_tpot_s=stage.tpot_s(current, route),
            tpot_limit_s=limits.tpot_limit_s,
            breaks_route=_broken_route(case, stage, current, plan),
            ttft_s=_first_token_s(case, stage, current, plan, name),
            ttft_limit_s=limits.ttft_limit_s,
            burn_ratio=seen.burn_ratio(limits) if seen else None,
            max_burn_ratio=case.options.max_burn_ratio,
        )

    return backing


def _broken_route(case: Case, stage: Stage, current: Ints, plan: Ints) -> str | None:
    """Name an unchanged route whose time per token the plan takes over its limit."""
    for route, name in enumerate(stage.batch.routes[stage.scene]):
        limits = case.routes.get(name)
        is_bound = limits is not None and limits.tpot_limit_s is not None
        if (
            not is_bound
            or stage.batch.rows[stage.scene, route] == 0
            or plan[route] != current[route]
        ):
            continue
        limit_s = float(stage.batch.limit_s[stage.scene, route, plan[route]])
        if stage.seconds(plan) > max(limit_s, stage.seconds(current)):
            return name
    return None


def _first_token_s(case: Case, stage: Stage, current: Ints, plan: Ints, name: str) -> float | None:
    """Predict the time to first token where it is within its limit now; None elsewhere."""
    load = stage.batch.loads[stage.scene]
    slack_s = _first_token_slack_s(case, name, load)
    high_s = case.latencies[name, load].high_ttft_s if slack_s is not None else None
    if slack_s is None or slack_s <= 0 or high_s is None:
        return None
    return high_s + max(0.0, stage.seconds(plan) - stage.seconds(current))


def _verdict(case: Case, stage: Stage, current: Ints, settled: Settled, route: int) -> Verdict:
    batch, plan = stage.batch, settled.plan
    name, load = batch.routes[stage.scene][route], batch.loads[stage.scene]
    missing = tuple(arm for arm in batch.arms if not case.knowledge.has_evidence(name, arm, load))
    why = _no_choice_reason(stage, plan, current, route, missing)
    if why is not None:
        return Verdict(route=name, load=load, why_not=why, missing=missing)
    change = replace(load_change(stage, plan, current, route, ""), goodput=stage.goodput(plan))
    best = best_speedup(stage, plan, route)
    alone = None
    if plan[route] != current[route] and int((plan != current).sum()) > 1:
        by_itself = stage.without_change(current, plan, route)
        alone = None if by_itself is None else stage.gain(by_itself, current, route)
    return Verdict(
        route=name,
        load=load,
        missing=missing,
        change=change,
        refusal=settled.refusals.get(route),
        step_ratio=_step_ratio(stage, plan, current, route),
        best_arm=batch.arms[best[0]] if best else None,
        best_speedup=best[1] if best else None,
        best_tokens=_tokens(stage, route, best[0]) if best else None,
        needed_tokens=_needed_tokens(stage, plan, route, best[0]) if best else None,
        alone=alone,
        min_gain=case.options.min_gain,
        goodput=float(stage.rates(plan).goodput[0]),
    )


def _step_ratio(stage: Stage, plan: Ints, current: Ints, route: int) -> float:
    """Return how a step grows by a route's change, or by all of them where only that is known."""
    without = stage.without_change(plan, current, route)
    return stage.seconds(plan) / stage.seconds(current if without is None else without)


def _no_choice_reason(
    stage: Stage, plan: Ints, current: Ints, route: int, missing: Sequence[Setting]
) -> str | None:
    """Say why a route has but one arm to choose; None where it has more."""
    in_force = stage.batch.arms[current[route]]
    if in_force in missing:
        return f"{in_force.label} is in force and was not observed enough lately"
    if int(stage.batch.allowed[stage.scene, route].sum()) < 2:
        return f"only {in_force.label} has evidence"
    if int((stage.scores(plan, route) > 0).sum()) < 2:
        return f"only the step time of {in_force.label} was measured near this batch size"
    return None


def _tokens(stage: Stage, route: int, arm: int) -> float:
    return stage.tokens_per_pass(route, arm).mean


def _needed_tokens(stage: Stage, plan: Ints, route: int, arm: int) -> float:
    """Return the tokens of a pass at which an arm equals off, all other routes as planned."""
    with_off, with_it = with_arm(plan, route, 0), with_arm(plan, route, arm)
    off, on = stage.rates(with_off), stage.rates(with_it)
    others = float(on.goodput[0] - on.by_route[0, route])
    needed = (float(off.goodput[0]) - others) / float(on.by_route[0, route])
    return needed * _tokens(stage, route, arm)
