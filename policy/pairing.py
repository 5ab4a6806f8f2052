"""Drafting steps held against the plain step among them, at one pace of the machine.

The engine runs a drafting step plain now and then, for comparison. The steps just before and after
it ran at the same pace with the same number of rows, so that their ratio holds whatever that pace
was. Sums, so that windows add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collectors.records import LoadLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPairing:
    """Reference steps of one load level and the drafting steps beside them, within a window.

    Attributes:
        load: the load level.
        pairs: reference steps that had enough neighbours.
        sum_log_ratio: sum over them of the logarithm of their neighbours' mean step time over
            their own.
        sum_square_log_ratio: sum of its squares.
        drafting_tokens: tokens that the neighbours delivered; a neighbour of two counts twice.
        drafting_steps: the neighbours, counted alike.
    """

    load: LoadLevel
    pairs: int
    sum_log_ratio: float
    sum_square_log_ratio: float
    drafting_tokens: int
    drafting_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedStep:
    """What of a journalled step a pairing needs.

    Attributes:
        boot: start of the engine it belongs to.
        load: its load level.
        plan_digest: the plan in force.
        rows: rows that decoded.
        step_s: seconds of the whole step.
        tokens: tokens delivered.
        is_reference: it ran plain for comparison.
        is_comparable: it decoded live rows alone, no prompt and no replayed row.
    """

    boot: int
    load: LoadLevel
    plan_digest: str
    rows: int
    step_s: float
    tokens: int
    is_reference: bool
    is_comparable: bool


MAX_NEIGHBOURS = 3
"""Drafting steps on each side that a reference step is held against."""

MIN_NEIGHBOURS = 2
"""Fewer on both sides together, and a reference step is left out."""

MAX_STEPS_AWAY = 12
"""How far from a reference step a neighbour may lie; the pace of a second ago is another."""


def paired(steps: Sequence[PairedStep]) -> tuple[StepPairing, ...]:
    """Pair every reference step with its neighbours and sum up by load level.

    Args:
        steps: all steps of a span, by boot and in order.
    """
    sums: dict[LoadLevel, StepPairing] = {}
    for place, step in enumerate(steps):
        if not (step.is_reference and step.is_comparable and step.step_s > 0):
            continue
        beside = [
            *_nearest(step, steps[max(0, place - MAX_STEPS_AWAY) : place][::-1]),
            *_nearest(step, steps[place + 1 : place + 1 + MAX_STEPS_AWAY]),
        ]
        if len(beside) >= MIN_NEIGHBOURS:
            one = _pair(step, beside)
            sums[step.load] = merged(sums[step.load], one) if step.load in sums else one
    return tuple(sums[load] for load in sorted(sums))


def merged(first: StepPairing, second: StepPairing) -> StepPairing:
    """Add up what two spans paired at one load level."""
    return StepPairing(
        load=first.load,
        pairs=first.pairs + second.pairs,
        sum_log_ratio=first.sum_log_ratio + second.sum_log_ratio,
        sum_square_log_ratio=first.sum_square_log_ratio + second.sum_square_log_ratio,
        drafting_tokens=first.drafting_tokens + second.drafting_tokens,
        drafting_steps=first.drafting_steps + second.drafting_steps,
    )


def _nearest(step: PairedStep, others: Sequence[PairedStep]) -> list[PairedStep]:
    """Return the first of some steps, nearest first, that ran like a step but for its drafts."""
    return [other for other in others if _is_alike(step, other)][:MAX_NEIGHBOURS]


def _is_alike(step: PairedStep, other: PairedStep) -> bool:
    return (
        other.is_comparable
        and not other.is_reference
        and other.step_s > 0
        and (other.boot, other.rows, other.plan_digest) == (step.boot, step.rows, step.plan_digest)
    )


def _pair(step: PairedStep, beside: Sequence[PairedStep]) -> StepPairing:
    mean_s = sum(other.step_s for other in beside) / len(beside)
    log_ratio = math.log(mean_s / step.step_s)
    return StepPairing(
        load=step.load,
        pairs=1,
        sum_log_ratio=log_ratio,
        sum_square_log_ratio=log_ratio**2,
        drafting_tokens=sum(other.tokens for other in beside),
        drafting_steps=len(beside),
    )
