"""Why this and not that, and from where on it would be otherwise: computed, for any answer.

The figures behind the sentences of ``policy.wording``; nothing is decided here.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize

from collectors.records import LoadLevel, Setting
from policy.adaptive import kind_of
from policy.apply_guardrails import BackingOf, load_change
from policy.guardrails import unsafe_reason
from policy.knowledge import Knowledge
from policy.plan_evaluation import PlanEvaluation, with_arm
from policy.statistics import Floats, Ints
from policy.types import TurningPoint


def runner_up_reason(
    evaluation: PlanEvaluation,
    plan: Ints,
    current: Ints,
    route: int,
    arm: int,
    backing_of: BackingOf,
) -> str:
    """Say why a route's second best Setting is not the one proposed.

    Args:
        evaluation: the batch.
        plan: [R] arms proposed.
        current: [R] arms in force.
        route: number of the route.
        arm: the second best.
        backing_of: gives the evidence behind a change.
    """
    tried = with_arm(current, route, arm)
    change = load_change(evaluation, tried, current, route)
    refusal = unsafe_reason(change, backing_of(tried, current, route, None))
    if refusal is not None:
        return refusal
    taken = with_arm(current, route, int(plan[route]))
    base = taken if evaluation.is_known(taken) else current
    less = evaluation.gain(tried, base)
    return (
        f"it gives {less.mean:+.1%} of the engine's tokens against "
        f"{evaluation.mean.arms[base[route]].label} "
        f"(90 % interval {less.low:+.1%} to {less.high:+.1%})"
    )


def turning_point(
    knowledge: Knowledge, load: LoadLevel, route: str, arm: Setting, tokens: float, needed: float
) -> TurningPoint:
    """Return from which acceptance on a Setting and speculation off change places.

    Args:
        knowledge: acceptance of the route.
        load: the load level.
        route: route name.
        arm: the Setting.
        tokens: its tokens per pass, as predicted.
        needed: tokens per pass at which it equals off, all else as planned.
    """
    belief = knowledge.posterior(route, kind_of(arm, load))
    means = belief.alpha / (belief.alpha + belief.beta)
    reach = belief.reach[: arm.k]
    return TurningPoint(
        load=load,
        setting=arm,
        tokens_per_pass=tokens,
        needed_tokens_per_pass=needed,
        acceptance=float(means[0]),
        needed_acceptance=_needed_acceptance(means[: arm.k], reach, tokens, needed),
    )


def _needed_acceptance(means: Floats, reach: Floats, tokens: float, needed: float) -> float | None:
    """Return the first position's acceptance, all positions scaled alike; None if none gives it."""

    def excess(scale: float) -> float:
        return float(np.cumprod(np.minimum(scale * means, 1.0) * reach).sum())

    if not tokens > 1 or not means[0] > 0:
        return None
    wanted = excess(1.0) * (needed - 1) / (tokens - 1)
    most = 1 / float(means[0])
    if not 0 <= wanted <= excess(most):
        return None
    scale = optimize.brentq(lambda at: excess(at) - wanted, 0.0, most)  # type: ignore[no-untyped-call]
    return float(scale) * float(means[0])
