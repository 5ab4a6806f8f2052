"""From the plan that looks best to the one that may be recommended.

A change passes the guardrails by itself, as approving it alone would have it, or only within the
set of all changes; then it says so. What passes neither way falls back to off, if that passes, and
else to what is in force; then the rest is judged again, until all that is left passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from collectors.records import Setting
from policy.changes import JointEffect, LoadChange
from policy.guardrails import Backing, unsafe_reason
from policy.interval import Interval
from policy.plan_evaluation import OFF_ARM, PlanEvaluation, with_arm
from policy.statistics import Ints

BackingOf: TypeAlias = Callable[[Ints, Ints, int, Interval | None], Backing]
"""What stands behind one route's change to a plan from another, given the gain of all changes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allowed:
    """A plan whose changes all pass.

    Attributes:
        plan: [R] arm of each route.
        refusals: by route number, the first Setting refused and why.
        needs_set: routes whose change passes only together with those of the others.
    """

    plan: Ints
    refusals: Mapping[int, tuple[Setting, str]]
    needs_set: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """One change: why it fails, or whether it needs the others."""

    reason: str | None
    needs_set: bool = False


def apply_guardrails(
    evaluation: PlanEvaluation, current: Ints, proposed: Ints, backing_of: BackingOf
) -> Allowed:
    """Take back changes until all that are left pass the guardrails.

    Args:
        evaluation: the batch.
        current: [R] arms in force.
        proposed: [R] arms that look best.
        backing_of: gives the evidence behind a change.
    """
    plan = proposed.copy()
    refusals: dict[int, tuple[Setting, str]] = {}
    while True:
        judged = _judged(evaluation, plan, current, backing_of)
        failed = {route: one.reason for route, one in judged.items() if one.reason is not None}
        if not failed:
            needs_set = frozenset(route for route, one in judged.items() if one.needs_set)
            return Allowed(plan=plan, refusals=refusals, needs_set=needs_set)
        for route, reason in failed.items():
            refusals.setdefault(route, (evaluation.mean.arms[plan[route]], reason))
            plan[route] = current[route] if plan[route] == OFF_ARM else OFF_ARM


def load_change(
    evaluation: PlanEvaluation, plan: Ints, current: Ints, route: int, *, needs_set: bool = False
) -> LoadChange:
    """Return what a plan changes for one route, with the figures of that change alone.

    Where the change alone has no known time the figures are those of the whole plan.
    """
    alone = with_arm(current, route, int(plan[route]))
    if not evaluation.is_known(alone):
        alone = plan
    arms, found = evaluation.mean.arms, evaluation.effect(alone, current, route)
    return LoadChange(
        load=evaluation.mean.loads[0],
        current=arms[current[route]],
        proposed=arms[plan[route]],
        tokens_per_pass=found.tokens_per_pass,
        current_tokens_per_pass=found.former_tokens_per_pass,
        step_ratio=found.step_ratio,
        token_share=found.token_share,
        route_speed=found.route_speed,
        engine_total=found.engine_total,
        over_off=evaluation.effect(alone, evaluation.off, route).route_speed,
        runner_up=best_other(evaluation, current, route, int(plan[route])),
        reason="",
        goodput=evaluation.goodput(alone),
        joint=joint_effect(evaluation, plan, current, route),
        needs_set=needs_set,
    )


def joint_effect(
    evaluation: PlanEvaluation, plan: Ints, current: Ints, route: int
) -> JointEffect | None:
    """Return what all changes of a plan bring together; None where one route changes at most."""
    changed = np.flatnonzero(plan != current)
    if len(changed) < 2 or route not in changed:
        return None
    found = evaluation.effect(plan, current, route)
    return JointEffect(
        routes=tuple(evaluation.mean.routes[0][index] for index in changed),
        route_speed=found.route_speed,
        engine_total=found.engine_total,
    )


def without(evaluation: PlanEvaluation, plan: Ints, route: int) -> Ints:
    """Return a plan with a route off; all off where that has no known time."""
    off = with_arm(plan, route, OFF_ARM)
    return off if evaluation.is_known(off) else evaluation.off


def best_other(
    evaluation: PlanEvaluation, plan: Ints, route: int, taken: int
) -> tuple[Setting, float] | None:
    """Return a route's best Setting but the one taken, others as in a plan; None if alone.

    With it comes the engine's total over that of the plan.
    """
    scores = evaluation.scores(plan, route)
    scores[taken] = -1.0
    best = int(np.argmax(scores))
    if scores[best] <= 0:
        return None
    total = evaluation.effect(with_arm(plan, route, best), plan, route).engine_total
    return evaluation.mean.arms[best], total.mean


def best_over_off(evaluation: PlanEvaluation, plan: Ints, route: int) -> tuple[int, float] | None:
    """Return the arm that gives most over off on a route, others as in a plan; None without one.

    With it comes the engine's total over that with the route off.
    """
    scores = evaluation.scores(plan, route)
    scores[OFF_ARM] = -1.0
    best = int(np.argmax(scores))
    if scores[best] <= 0:
        return None
    chosen = with_arm(plan, route, best)
    return best, 1 + evaluation.gain(chosen, without(evaluation, chosen, route)).mean


def _judged(
    evaluation: PlanEvaluation, plan: Ints, current: Ints, backing_of: BackingOf
) -> dict[int, _Judged]:
    changed = [int(route) for route in np.flatnonzero(plan != current)]
    joint = evaluation.gain(plan, current) if len(changed) > 1 else None
    return {route: _judge(evaluation, plan, current, route, backing_of, joint) for route in changed}


def _judge(
    evaluation: PlanEvaluation,
    plan: Ints,
    current: Ints,
    route: int,
    backing_of: BackingOf,
    joint: Interval | None,
) -> _Judged:
    """Judge one change by itself, and where it fails, given the changes of the others."""
    change = load_change(evaluation, plan, current, route)
    alone = with_arm(current, route, int(plan[route]))
    reason = unsafe_reason(change, backing_of(alone, current, route, joint))
    if reason is None or joint is None:
        return _Judged(reason=reason)
    base = with_arm(plan, route, int(current[route]))
    base = base if evaluation.is_known(base) else current
    reason = unsafe_reason(change, backing_of(plan, base, route, joint))
    return _Judged(reason=reason, needs_set=True)
