"""The sentences of a recommendation. Numbers in, one line out; nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from collectors.records import LoadLevel, Method, Setting
from policy.changes import JointEffect, LoadChange
from policy.types import AcceptanceCurve, Interval


def change_reason(load: LoadLevel, change: LoadChange) -> str:
    """Say why a Setting is proposed in place of another: the verdict, the figures, why."""
    total = _figure("engine total", change.engine_total)
    speed = _figure("this route's speed", change.route_speed)
    if change.proposed.method is Method.OFF:
        return (
            f"At load {load.label} turn {change.current.label} off, it costs more than it yields: "
            f"{total}, {speed}."
        )
    return (
        f"At load {load.label} {change.proposed.label} in place of {change.current.label}: "
        f"{speed}, {total}; {change.tokens_per_pass.mean:.2f} tokens a pass in place of "
        f"{change.current_tokens_per_pass:.2f}, {change.step_ratio.mean:.2f} times the step time."
    )


def _figure(name: str, ratio: Interval) -> str:
    less = ratio.minus_one
    return f"{name} {less.mean:+.1%} (90 % interval {less.low:+.1%} to {less.high:+.1%})"


def stay_reason(
    load: LoadLevel, current: Setting, best: tuple[Setting, float] | None, refusal: str | None
) -> str:
    """Say why nothing changes."""
    if best is None or best[1] <= 1:
        return f"At load {load.label} {current.label} is the best of the Settings with evidence."
    arm, total = best
    why = refusal or "that is too little to change for"
    return f"At load {load.label} {arm.label} would give {total - 1:+.1%} engine total, but {why}."


def set_reason(load: LoadLevel, joint: JointEffect) -> str:
    """Say that a change pays only with those of other routes, and what all bring together."""
    return (
        f"At load {load.label} only if the changes of {' and '.join(joint.routes)} are approved "
        f"together: {_figure('engine total', joint.engine_total)}."
    )


def break_even_reason(paying: LoadLevel | None, losing: Sequence[tuple[LoadLevel, float]]) -> str:
    """Say up to which load speculation pays, and what it does above."""
    worst = f"load {losing[0][0].label}, where the best gives {losing[0][1]:.2f} of plain goodput"
    if paying is None:
        return f"Speculation pays at no load level seen, not even at {worst}."
    return f"Off above the break-even: it pays up to load {paying.label}, not at {worst}."


def adaptive_reason(arm: Setting, drafted: Sequence[tuple[LoadLevel, float]]) -> str:
    """Say what an adaptive Setting does: its ceiling, and how long its drafts are by load level."""
    lengths = ", ".join(
        f"{mean:.1f} at load {load.label} ({1 - mean / arm.k:.0%} cut)" for load, mean in drafted
    )
    return (
        f"{arm.label} drafts {arm.k} tokens at most, and the engine ends each draft where the next "
        f"token no longer pays: mean length {lengths}."
    )


def evidence_reason(curve: AcceptanceCurve) -> str:
    """Say what a proposed method's acceptance rests on, where most of it was never served."""
    kinds = ", ".join(f"{share:.0%} {kind}" for kind, share in curve.shares.items())
    return f"What is known of {curve.method} here is {kinds}: hardly any of it was served live."


def no_data_reason(load: LoadLevel, why: str) -> str:
    """Say why a load level got no answer."""
    return f"At load {load.label} there is no answer: {why}."


def replay_wish(route: str, arms: Sequence[Setting]) -> list[str]:
    """Name the Settings that a replay could make evaluable, a sentence for each method."""
    wishes = []
    by_method = sorted(arms, key=lambda arm: (arm.method, arm.is_adaptive, arm.k))
    for (method, is_adaptive), group in groupby(
        by_method, key=lambda arm: (arm.method, arm.is_adaptive)
    ):
        lengths = sorted({arm.k for arm in group})
        shown = ", ".join(str(k) for k in lengths)
        name, far = (f"{method} adaptive", "at that load") if is_adaptive else (method, "that far")
        wishes.append(
            f"A replay of {name} with k {shown} on {route}: not evaluable, since never observed "
            f"or replayed {far} there."
        )
    return wishes


def flip_wish(load: LoadLevel, proposed: Setting, tokens: float, needed: float) -> str:
    """Name the tokens per pass at which off would be better."""
    return (
        f"At load {load.label}: {proposed.label} falling from {tokens:.2f} to below {needed:.2f} "
        "tokens a pass, where off is better."
    )


def rise_wish(load: LoadLevel, arm: Setting, tokens: float, needed: float) -> str:
    """Name the tokens per pass from which speculation would be better than off."""
    return (
        f"At load {load.label}: {arm.label} rising from {tokens:.2f} to above {needed:.2f} tokens "
        "a pass, where it beats off."
    )


def lost_reason(load: LoadLevel, change: LoadChange, payback_s: float) -> str:
    """Say what a change itself loses, and in what time it earns that back."""
    return (
        f"At load {load.label} the change to {change.proposed.label} itself loses about "
        f"{change.lost_s:.2g} s of the engine's time, earned back in {payback_s:.2g} s."
    )


def pool_reason(
    load: LoadLevel,
    leaves: Sequence[str],
    gain: Interval,
    off_tax_ratio: float,
    changed: Mapping[str, Setting],
    *,
    is_off: bool,
) -> str:
    """Say what moving routes to a pool without speculation gains, and why."""
    names = " and ".join(leaves)
    runs = "run" if len(leaves) > 1 else "runs"
    why = f"a plain step costs {off_tax_ratio:.1%} more here than there"
    if is_off:
        why = f"off is best there anyway, and {why}"
    if changed:
        others = ", ".join(f"{route} at {setting.label}" for route, setting in changed.items())
        why = f"{why}; {others} here then"
    return (
        f"At load {load.label} {names} {runs} better in a pool without speculation: "
        f"{gain.mean:+.1%} of all tokens (90 % interval {gain.low:+.1%} to {gain.high:+.1%}), "
        f"for {why}."
    )
