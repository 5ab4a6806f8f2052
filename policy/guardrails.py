"""What no recommendation may do, however good its numbers look.

``unsafe_reason`` has the last word on every change of the plan; speculation off and staying as
one is are always legal answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from collectors.records import Method, Setting
from policy.types import Interval, LoadChange

MAX_PACE_ERROR = 0.05
"""From here on, not knowing the machine's pace is named as what hides a gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What stands behind a proposed change.

    Attributes:
        depth: draft positions for which the proposed method was observed or replayed; 0 is never.
        is_live: True where live passes are among that.
        is_cost_known: True where the step time of the proposal was measured or lies near by.
        gain: what the engine's goodput gains by the change, 0.03 being 3 %.
        min_gain: what it must gain.
        total_over_off: the engine's goodput with the change over that with the route off.
        joint_gain: gain of all changes at this load level together; None where it is the only one.
        low_over_off: low end of the plan's goodput over that of speculation off.
        least_over_off: what it must keep.
        pace_error: relative error of the step ratio from not knowing the machine's pace.
        pace_spread: the machine's slow windows over its quick ones.
        tpot_s: predicted time per output token at the proposal, in seconds.
        current_tpot_s: the same at the current plan.
        tpot_limit_s: objective of the route, in seconds; None without.
        breaks_route: another route whose limit the plan breaks and the current one keeps.
        ttft_s: predicted high quantile of the time to first token, in seconds; None if unknown.
        ttft_limit_s: objective of the route, in seconds; None without.
        burn_ratio: share of the route's requests beyond its limits; None if unknown.
        max_burn_ratio: share from which nothing unproven is tried on a route.
    """

    depth: int
    is_live: bool
    is_cost_known: bool
    gain: Interval
    min_gain: float = 0.03
    total_over_off: float = 1.0
    joint_gain: Interval | None = None
    low_over_off: float = 1.0
    least_over_off: float = 0.985
    pace_error: float = 0.0
    pace_spread: float = 1.0
    tpot_s: float
    current_tpot_s: float
    tpot_limit_s: float | None = None
    breaks_route: str | None = None
    ttft_s: float | None = None
    ttft_limit_s: float | None = None
    burn_ratio: float | None = None
    max_burn_ratio: float = 0.1


def unsafe_reason(change: LoadChange, backing: Backing) -> str | None:
    """Say why a change must not be recommended; None where it may be.

    The first reason found is given, those about missing knowledge before those about the gain.
    """
    if change.proposed == change.current:
        return None
    return (
        _rule_reason(change.proposed)
        or _number_reason(change, backing)
        or _knowledge_reason(change.proposed, backing)
        or _gain_reason(change, backing)
        or _objective_reason(change.proposed, backing)
    )


def _rule_reason(proposed: Setting) -> str | None:
    if proposed.rule.is_lossless:
        return None
    return f"rule {proposed.rule} is lossy: only a person may choose it"


def _number_reason(change: LoadChange, backing: Backing) -> str | None:
    intervals = {
        "tokens per pass": change.tokens_per_pass,
        "step ratio": change.step_ratio,
        "route speed": change.route_speed,
        "engine total": change.engine_total,
        "speed over off": change.over_off,
        "gain": backing.gain,
    }
    for name, value in intervals.items():
        bounds = (value.low, value.mean, value.high)
        if not all(math.isfinite(bound) for bound in bounds):
            return f"its {name} is not a number: {bounds}"
        if not value.low <= value.mean <= value.high:
            return f"its {name} lies outside its own interval: {bounds}"
    if not math.isfinite(backing.tpot_s):
        return f"its time per token is not a number: {backing.tpot_s}"
    return None


def _knowledge_reason(proposed: Setting, backing: Backing) -> str | None:
    if not backing.is_cost_known:
        return f"no step time near that of {proposed.label} was measured: not evaluable"
    if proposed.method is Method.OFF:
        return None
    if backing.depth == 0 and proposed.is_adaptive:
        return f"{proposed.label} was never observed or replayed at this load: not evaluable"
    if backing.depth == 0:
        return f"{proposed.method} was never observed or replayed here: not evaluable"
    if proposed.k > backing.depth:
        return f"k {proposed.k} lies beyond the evidence, which ends at position {backing.depth}"
    return None


def _gain_reason(change: LoadChange, backing: Backing) -> str | None:
    gain, joint = backing.gain, backing.joint_gain
    if change.proposed.method is not Method.OFF and backing.total_over_off < 1:
        return f"it is predicted below speculation off, at {backing.total_over_off:.2f} of it"
    if gain.mean < backing.min_gain:
        return (
            f"{gain.mean:+.1%} of the engine's tokens is below the {backing.min_gain:.1%} that a "
            "change of this route must bring"
        )
    if gain.low <= 0 and backing.pace_error > MAX_PACE_ERROR:
        return (
            f"cannot tell yet: the machine's pace varied by {backing.pace_spread:.1f}x between the "
            "windows in which both were timed; windows that hold both, as a trial or reference "
            "steps give them, or a calibration of the idle engine would settle it"
        )
    if gain.low <= 0:
        return (
            "it is not statistically significant: 90 % interval of the engine's tokens "
            f"{gain.low:+.1%} to {gain.high:+.1%}"
        )
    if joint is not None and not joint.low > 0:
        return (
            "all changes at this load level together are not statistically significant: "
            f"{joint.low:+.1%} of the engine's tokens at worst"
        )
    if not backing.low_over_off >= backing.least_over_off:
        return (
            f"the plan may fall to {backing.low_over_off:.2f} of speculation off, below the "
            f"{backing.least_over_off:.3g} that it must keep"
        )
    return None


def _objective_reason(proposed: Setting, backing: Backing) -> str | None:
    limit_s = backing.tpot_limit_s
    if limit_s is not None and backing.tpot_s > max(limit_s, backing.current_tpot_s):
        return (
            f"it would take {backing.tpot_s * 1e3:.1f} ms a token, over the route's limit "
            f"of {limit_s * 1e3:.1f} ms"
        )
    if backing.breaks_route is not None:
        return f"it would push route {backing.breaks_route} over its limit"
    if _is_over(backing.ttft_s, backing.ttft_limit_s):
        return f"its first token would come after {backing.ttft_s} s, over the route's limit"
    is_burning = _is_over(backing.burn_ratio, backing.max_burn_ratio)
    if is_burning and not backing.is_live and proposed.method is not Method.OFF:
        return (
            f"{backing.burn_ratio:.0%} of the route's requests break its limits, and this was "
            "never seen on live traffic"
        )
    return None


def _is_over(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit
