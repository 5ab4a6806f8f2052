"""The sentences of a recommendation. Numbers in, one line out; nothing is decided here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from collectors.records import LoadLevel, Method, Setting
from policy.types import AcceptanceCurve, Interval, LoadChange


def change_reason(load: LoadLevel, change: LoadChange, step_ratio: float) -> str:
    """Say why a Setting is proposed in place of another."""
    proposed, current, gain = change.proposed, change.current, change.gain
    if proposed.method is Method.OFF:
        return (
            f"At load {load.label} {current.label} costs more than it yields: off gives "
            f"{gain.mean:+.1%} (90 % interval {gain.low:+.1%} to {gain.high:+.1%})."
        )
    return (
        f"At load {load.label} {proposed.label} gives {gain.mean:+.1%} over {current.label} "
        f"(90 % interval {gain.low:+.1%} to {gain.high:+.1%}): "
        f"{change.tokens_per_pass.mean:.2f} tokens a pass for {step_ratio:.2f} times the step time."
    )


def stay_reason(
    load: LoadLevel, current: Setting, best: tuple[Setting, float] | None, refusal: str | None
) -> str:
    """Say why nothing changes."""
    if best is None or best[1] <= 0:
        return f"At load {load.label} {current.label} is the best of the Settings with evidence."
    arm, gain = best
    why = refusal or "that is too little to change for"
    return f"At load {load.label} {arm.label} would give {gain:+.1%}, but {why}."


def alone_reason(load: LoadLevel, alone: Interval) -> str:
    """Say what a change is worth while every other route stays as it is."""
    return (
        f"At load {load.label} the gain counts on the changes of the other routes; approved alone, "
        f"with the others as they are, it is {alone.mean:+.1%}."
    )


def break_even_reason(paying: LoadLevel | None, losing: Sequence[tuple[LoadLevel, float]]) -> str:
    """Say up to which load speculation pays, and what it does above."""
    worst = f"load {losing[0][0].label}, where the best gives {losing[0][1]:.2f} of plain goodput"
    if paying is None:
        return f"Speculation pays at no load level seen, not even at {worst}."
    return f"Off above the break-even: it pays up to load {paying.label}, not at {worst}."


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
    by_method = sorted(arms, key=lambda arm: (arm.method, arm.k))
    for method, group in groupby(by_method, key=lambda arm: arm.method):
        lengths = sorted({arm.k for arm in group})
        shown = ", ".join(str(k) for k in lengths)
        wishes.append(
            f"A replay of {method} with k {shown} on {route}: not evaluable, since never observed "
            "or replayed that far there."
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
