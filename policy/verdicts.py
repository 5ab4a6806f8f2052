"""The decision at each load level: plan, judge, and say what stands behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collectors.records import LoadLevel, Plan, Route, Setting
from policy.apply_guardrails import (
    Allowed,
    BackingOf,
    apply_guardrails,
    best_over_off,
    load_change,
    without,
)
from policy.belief import LastingBelief
from policy.budgets import EditBudget
from policy.explain import runner_up_reason
from policy.explore import trials
from policy.goodput import Batch, step_seconds
from policy.guardrails import Backing
from policy.knowledge import Knowledge, Latency, Mix
from policy.objective import with_objective
from policy.options import RecommendOptions
from policy.plan_choice import PlanChoice
from policy.plan_evaluation import PlanEvaluation, with_arm
from policy.pools import pool_advice
from policy.regimes import Regimes
from policy.scenes import lone_batch, one_scene, shared_batch
from policy.statistics import Ints
from policy.summary import Verdict
from policy.switching import LEAST_LOST_S, SwitchCost
from policy.types import Evidence, Interval, Trial


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
    for number in range(batch.num_scenes):
        scene, mix = one_scene(batch, number), _mix(case, batch.loads[number])
        evaluation = PlanEvaluation(
            scene,
            LastingBelief(case.regimes, case.knowledge, scene, mix.context_tokens),
            case.generator,
            case.options.num_draws,
            prompt_s_per_token=mix.prompt_s_per_token,
            error_scale=case.options.error_scale,
        )
        yield from _scene_verdicts(case, evaluation, current[number])


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


def _scene_verdicts(case: Case, evaluation: PlanEvaluation, current: Ints) -> Iterator[Verdict]:
    batch, load = evaluation.mean, evaluation.mean.loads[0]
    names = batch.routes[0]
    present = [
        route
        for route, name in enumerate(names)
        if batch.rows[0, route] > 0 and name in case.routes
    ]
    if not evaluation.is_known(current):
        why = "no step like those of the plan in force was measured"
        yield from (Verdict(route=names[route], load=load, why_not=why) for route in present)
        return
    choice = _choice(case, evaluation, current)
    frozen = _frozen(case, evaluation, present) if choice.is_safe(current) else {}
    proposed = choice.moved(current, choice.improved(current, set(frozen)))
    backing_of = _backing_of(case, evaluation, current, choice)
    allowed = apply_guardrails(evaluation, current, proposed, backing_of)
    movable = [route for route in present if batch.allowed[0, route].sum() > 1]
    advice = pool_advice(evaluation, allowed.plan, movable, case.options)
    for route in present:
        verdict = _verdict(case, evaluation, current, allowed, route)
        verdict = replace(
            _with_loss(verdict, case, evaluation, current, route),
            trials=_trials(case, evaluation, allowed.plan, route),
            pool=advice if advice and verdict.route in advice.leaves else None,
        )
        yield _with_runner_up(verdict, evaluation, current, allowed.plan, route, backing_of, frozen)


def _choice(case: Case, evaluation: PlanEvaluation, current: Ints) -> PlanChoice:
    batch = evaluation.mean
    running = {name: batch.arms[arm] for name, arm in zip(batch.routes[0], current, strict=True)}
    context_tokens = _mix(case, batch.loads[0]).context_tokens
    charge = case.switching.charge(batch, running, context_tokens)
    return PlanChoice(evaluation, case.options.as_control(), charge=charge)


def _with_loss(
    verdict: Verdict, case: Case, evaluation: PlanEvaluation, current: Ints, route: int
) -> Verdict:
    """Add what the change itself loses, and in what time it earns that back."""
    change, rows = verdict.change, evaluation.mean.rows[0]
    if change is None or not verdict.is_change:
        return verdict
    share = float(rows[route] / rows.sum())
    context_tokens = _mix(case, verdict.load).context_tokens
    lost_s = case.switching.lost_s(change.current, change.proposed, share, context_tokens)
    gained = change.engine_total.mean - 1
    if not (lost_s > LEAST_LOST_S and gained > 0):
        return verdict
    return replace(verdict, change=replace(change, lost_s=lost_s), payback_s=lost_s / gained)


def _trials(case: Case, evaluation: PlanEvaluation, plan: Ints, route: int) -> tuple[Trial, ...]:
    name = evaluation.mean.routes[0][route]
    seen = case.latencies.get((name, evaluation.mean.loads[0]))
    burn_ratio = seen.burn_ratio(case.routes[name]) if seen else None
    found = trials(
        evaluation,
        plan,
        route,
        knowledge=case.knowledge,
        options=case.options,
        burn_ratio=burn_ratio,
    )
    return tuple(found)


def _with_runner_up(
    verdict: Verdict,
    evaluation: PlanEvaluation,
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
    arm = evaluation.mean.arms.index(change.runner_up[0])
    why = frozen.get(route) if arm != current[route] else None
    if why is None and verdict.refusal is not None and verdict.refusal[0] == change.runner_up[0]:
        why = verdict.refusal[1]
    if why is None:
        why = runner_up_reason(evaluation, plan, current, route, arm, backing_of)
    return replace(verdict, change=replace(change, runner_up_reason=why))


def _frozen(case: Case, evaluation: PlanEvaluation, routes: Sequence[int]) -> dict[int, str]:
    """Return the routes whose entry changed too often lately, and the sentence that says so."""
    names, load = evaluation.mean.routes[0], evaluation.mean.loads[0]
    return {
        route: f"its Setting changed {case.options.granted_changes:.0f} times lately, and an entry "
        f"earns another change in {case.options.seconds_per_change:.0f} s"
        for route in routes
        if not case.budget.has(names[route], load, case.now_s)
    }


def _backing_of(
    case: Case, evaluation: PlanEvaluation, current: Ints, choice: PlanChoice
) -> BackingOf:
    load = evaluation.mean.loads[0]

    def backing(plan: Ints, base: Ints, route: int, joint_gain: Interval | None) -> Backing:
        name = evaluation.mean.routes[0][route]
        arm = evaluation.mean.arms[plan[route]]
        limits, seen = case.routes[name], case.latencies.get((name, load))
        return Backing(
            depth=case.knowledge.depth(name, arm, load),
            is_live=Evidence.LIVE in case.knowledge.acceptance.evidence(name, arm),
            is_cost_known=evaluation.is_known(plan),
            gain=evaluation.gain(plan, base),
            min_gain=case.options.min_gain * evaluation.token_share(base, route),
            total_over_off=1 + evaluation.gain(plan, without(evaluation, plan, route)).mean,
            joint_gain=joint_gain,
            low_over_off=choice.over_off(plan),
            least_over_off=case.options.least_over_off,
            pace_error=evaluation.pace_error(plan, base),
            pace_spread=case.knowledge.cost.paces.spread_ratio,
            tpot_s=evaluation.tpot_s(plan, route),
            current_tpot_s=evaluation.tpot_s(current, route),
            tpot_limit_s=limits.tpot_limit_s,
            breaks_route=_broken_route(case, evaluation, current, plan),
            ttft_s=_first_token_s(case, evaluation, current, plan, name),
            ttft_limit_s=limits.ttft_limit_s,
            burn_ratio=seen.burn_ratio(limits) if seen else None,
            max_burn_ratio=case.options.max_burn_ratio,
        )

    return backing


def _broken_route(case: Case, evaluation: PlanEvaluation, current: Ints, plan: Ints) -> str | None:
    """Name an unchanged route whose time per token the plan takes over its limit."""
    batch = evaluation.mean
    for route, name in enumerate(batch.routes[0]):
        limits = case.routes.get(name)
        is_bound = limits is not None and limits.tpot_limit_s is not None
        if not is_bound or batch.rows[0, route] == 0 or plan[route] != current[route]:
            continue
        limit_s = float(batch.limit_s[0, route, plan[route]])
        if evaluation.step_s(plan) > max(limit_s, evaluation.step_s(current)):
            return name
    return None


def _first_token_s(
    case: Case, evaluation: PlanEvaluation, current: Ints, plan: Ints, name: str
) -> float | None:
    """Predict the time to first token where it is within its limit now; None elsewhere."""
    load = evaluation.mean.loads[0]
    slack_s = _first_token_slack_s(case, name, load)
    high_s = case.latencies[name, load].high_ttft_s if slack_s is not None else None
    if slack_s is None or slack_s <= 0 or high_s is None:
        return None
    return high_s + max(0.0, evaluation.step_s(plan) - evaluation.step_s(current))


def _verdict(
    case: Case, evaluation: PlanEvaluation, current: Ints, allowed: Allowed, route: int
) -> Verdict:
    batch, plan = evaluation.mean, allowed.plan
    name, load = batch.routes[0][route], batch.loads[0]
    missing = tuple(arm for arm in batch.arms if not case.knowledge.has_evidence(name, arm, load))
    why = _no_choice_reason(evaluation, plan, current, route, missing)
    if why is not None:
        return Verdict(route=name, load=load, why_not=why, missing=missing)
    best = best_over_off(evaluation, plan, route)
    needs_set = route in allowed.needs_set
    return Verdict(
        route=name,
        load=load,
        missing=missing,
        change=load_change(evaluation, plan, current, route, needs_set=needs_set),
        refusal=allowed.refusals.get(route),
        best_arm=batch.arms[best[0]] if best else None,
        best_over_off=best[1] if best else None,
        best_tokens=_tokens(evaluation, route, best[0]) if best else None,
        needed_tokens=_needed_tokens(evaluation, plan, route, best[0]) if best else None,
        goodput=float(evaluation.rates(plan).goodput[0]),
    )


def _no_choice_reason(
    evaluation: PlanEvaluation, plan: Ints, current: Ints, route: int, missing: Sequence[Setting]
) -> str | None:
    """Say why a route has but one arm to choose; None where it has more."""
    in_force = evaluation.mean.arms[current[route]]
    if in_force in missing:
        return f"{in_force.label} is in force and was not observed enough lately"
    if int(evaluation.mean.allowed[0, route].sum()) < 2:
        return f"only {in_force.label} has evidence"
    if int((evaluation.scores(plan, route) > 0).sum()) < 2:
        return f"only the step time of {in_force.label} was measured near this batch size"
    return None


def _tokens(evaluation: PlanEvaluation, route: int, arm: int) -> float:
    return float(evaluation.mean.tokens[0, route, arm] / evaluation.mean.rows[0, route])


def _needed_tokens(evaluation: PlanEvaluation, plan: Ints, route: int, arm: int) -> float:
    """Return the tokens of a pass at which an arm equals off, all other routes as planned.

    The engine's total is what is equal; 1 is the least that a pass can yield.
    """
    on, rows = with_arm(plan, route, arm), float(evaluation.mean.rows[0, route])
    off = without(evaluation, on, route)
    slower = evaluation.step_s(on) / evaluation.step_s(off)
    tokens = evaluation.rates(off)
    others = float(tokens.goodput[0] - tokens.by_route[0, route]) * evaluation.step_s(off)
    return max(1.0, 1 + (slower - 1) * (others + rows) / rows)
