"""From the plan that looks best to the one that may be recommended.

Each change has to pass the guardrails given all the others. What fails falls back to off, if that
passes, and else to what is in force; then the rest is judged again, until all that is left passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from collectors.records import Setting
from policy.effects import Stage
from policy.guardrails import Backing, unsafe_reason
from policy.statistics import Ints
from policy.types import Interval, LoadChange

BackingOf: TypeAlias = Callable[[Ints, int, Interval | None], Backing]
"""What stands behind one route's change in a plan, given the gain of all changes together."""

OFF_ARM = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settled:
    """A plan whose changes all pass.

    Attributes:
        plan: [R] arm of each route.
        refusals: by route number, the first Setting refused and why.
    """

    plan: Ints
    refusals: Mapping[int, tuple[Setting, str]]


def settle(stage: Stage, current: Ints, proposed: Ints, backing_of: BackingOf) -> Settled:
    """Take back changes until all that are left pass the guardrails together.

    Args:
        stage: the scene with its draws.
        current: [R] arms in force.
        proposed: [R] arms that look best.
        backing_of: gives the evidence behind a change.
    """
    plan = proposed.copy()
    refusals: dict[int, tuple[Setting, str]] = {}
    while failed := _failed(stage, plan, current, backing_of):
        for route, reason in failed.items():
            refusals.setdefault(route, (stage.batch.arms[plan[route]], reason))
            plan[route] = current[route] if plan[route] == OFF_ARM else OFF_ARM
    return Settled(plan=plan, refusals=refusals)


def load_change(stage: Stage, plan: Ints, current: Ints, route: int, reason: str) -> LoadChange:
    """Return what a plan changes for one route, all other routes as in the plan."""
    arms = stage.batch.arms
    gain = stage.gain_of_change(plan, current, route)
    over_off = stage.gain_of_change(plan, np.full_like(plan, OFF_ARM), route)
    return LoadChange(
        load=stage.batch.loads[stage.scene],
        current=arms[current[route]],
        proposed=arms[plan[route]],
        tokens_per_pass=stage.tokens_per_pass(route, int(plan[route])),
        gain=gain,
        speedup=Interval(low=1 + over_off.low, mean=1 + over_off.mean, high=1 + over_off.high),
        runner_up=best_other(stage, plan, current, route),
        reason=reason,
    )


def best_other(stage: Stage, plan: Ints, current: Ints, route: int) -> tuple[Setting, float] | None:
    """Return the best Setting but the planned one, and its gain over the current; None if alone."""
    scores = stage.scores(plan, route)
    scores[plan[route]] = -1.0
    best = int(np.argmax(scores))
    if scores[best] <= 0:
        return None
    return stage.batch.arms[best], gain_of_arm(stage, plan, current, route, best)


def gain_of_arm(stage: Stage, plan: Ints, current: Ints, route: int, arm: int) -> float:
    """Return the mean gain over the current arm if a route had another one in a plan."""
    return stage.gain_of_change(with_arm(plan, route, arm), current, route).mean


def best_speedup(stage: Stage, plan: Ints, route: int) -> tuple[int, float] | None:
    """Return the arm that gives most over off on a route, and its speedup; None without one."""
    scores = stage.scores(plan, route)
    scores[OFF_ARM] = -1.0
    best = int(np.argmax(scores))
    if scores[best] <= 0:
        return None
    off = np.full_like(plan, OFF_ARM)
    return best, 1 + gain_of_arm(stage, plan, off, route, best)


def with_arm(plan: Ints, route: int, arm: int) -> Ints:
    """Return the plan with one route's arm replaced."""
    changed = plan.copy()
    changed[route] = arm
    return changed


def _failed(stage: Stage, plan: Ints, current: Ints, backing_of: BackingOf) -> dict[int, str]:
    changed = [int(route) for route in np.flatnonzero(plan != current)]
    joint = stage.joint_gain(plan, current) if len(changed) > 1 else None
    failed = {}
    for route in changed:
        change = load_change(stage, plan, current, route, "")
        reason = unsafe_reason(change, backing_of(plan, route, joint))
        if reason is not None:
            failed[route] = reason
    return failed
