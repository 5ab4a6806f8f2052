"""Two greedy answers to one prompt: where they part, and whether rounding can explain it.

Speculation is exact in real arithmetic. On a device, verifying several positions in one pass adds
up in another order than one pass each, so a near tie between the two best tokens may fall the
other way. A control arm (plain against plain at another batch shape) shows how often that happens
without speculation; only what goes beyond it counts against a Setting.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from policy.errors import InvalidInput
from policy.statistics import more_often_p, wilson_interval
from policy.types import Interval

NOISE_BY_DTYPE: Mapping[str, float] = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.5}
"""Top-2 logit margins within which the order may flip: a few roundings of a logit near 30."""

FALSE_ALARM = 0.01
MIN_PAIRS = 20


class Outcome(StrEnum):
    """How two answers compare, by their first difference."""

    IDENTICAL = "identical"
    NEAR_TIE = "near_tie"
    SUSPICIOUS = "suspicious"
    LENGTH = "length"
    ERROR = "error"


class Verdict(StrEnum):
    """What a report says of a Setting."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NO_DATA = "no_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyAnswer:
    """One greedy answer.

    Attributes:
        token_ids: the tokens delivered.
        margins: by position, logit of the best token less that of the second; may hold one more
            than there are tokens, for the decision to end there.
        error: what went wrong; None where the answer is whole.
    """

    token_ids: tuple[int, ...]
    margins: tuple[float, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The first difference between two answers.

    Attributes:
        outcome: its kind.
        position: where they part, from 0; None where they do not.
        margin: smallest top-2 margin known there; None where unknown.
        reason: one sentence.
    """

    outcome: Outcome
    position: int | None = None
    margin: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceReport:
    """What all pairs of an arm say, against its control.

    Attributes:
        pairs: pairs compared, those with errors included.
        outcomes: pairs by outcome.
        control_pairs: pairs of the control arm.
        control_outcomes: the same by outcome.
        exact_match: share of identical pairs among those without error, with its 90 % interval;
            None without such pairs.
        control_exact_match: the same of the control.
        split_positions: where pairs part, ascending.
        margins: known margins there, ascending.
        noise: margin within which a difference counted as a near tie.
        false_alarm: chance to call an arm worse that is like its control.
        p_value: chance of as many differences if the arm parted as often as its control.
        is_more_than_control: True where that chance is below the false-alarm rate.
        verdict: pass, fail, inconclusive or no data.
        reasons: sentences behind it.
    """

    pairs: int
    outcomes: Mapping[Outcome, int]
    control_pairs: int
    control_outcomes: Mapping[Outcome, int]
    exact_match: Interval | None
    control_exact_match: Interval | None
    split_positions: tuple[int, ...]
    margins: tuple[float, ...]
    noise: float
    false_alarm: float
    p_value: float
    is_more_than_control: bool
    verdict: Verdict
    reasons: tuple[str, ...]


def classify(
    reference: GreedyAnswer, other: GreedyAnswer, *, noise: float = NOISE_BY_DTYPE["float32"]
) -> Comparison:
    """Find the first difference and say what kind it is.

    A difference without a known margin is suspicious: nothing shows that it is a tie.

    Args:
        reference: the plain answer.
        other: the answer under the Setting, or the control's.
        noise: top-2 margin within which the order may flip.

    Raises:
        InvalidInput: the noise is negative or no number.
    """
    _require_noise(noise)
    errors = [answer.error for answer in (reference, other) if answer.error is not None]
    if errors:
        return Comparison(outcome=Outcome.ERROR, reason=f"no whole answer: {errors[0]}")
    position = _first_difference(reference.token_ids, other.token_ids)
    if position is None:
        return Comparison(outcome=Outcome.IDENTICAL)
    margin = _margin_at(position, reference, other)
    if margin is not None and margin <= noise:
        reason = f"a margin of {margin:.3g} at token {position} is within the noise of {noise:.3g}"
        return Comparison(outcome=Outcome.NEAR_TIE, position=position, margin=margin, reason=reason)
    return _beyond_noise(position, margin, noise, reference, other)


def measured_noise(control: Sequence[Comparison], *, dtype: str = "float32") -> float:
    """Return the noise of this machine: the widest margin at which the control arm parted.

    At least the noise of the number format; the control runs no speculation, so whatever makes it
    part is rounding.

    Raises:
        InvalidInput: the number format is unknown.
    """
    if dtype not in NOISE_BY_DTYPE:
        known = ", ".join(NOISE_BY_DTYPE)
        raise InvalidInput(f"unknown dtype {dtype!r}; use one of: {known}")
    return max([NOISE_BY_DTYPE[dtype], *_margins(control)])


def report(
    arm: Sequence[Comparison],
    control: Sequence[Comparison],
    *,
    noise: float = NOISE_BY_DTYPE["float32"],
    false_alarm: float = FALSE_ALARM,
    min_pairs: int = MIN_PAIRS,
) -> DivergenceReport:
    """Judge an arm against its control.

    Args:
        arm: plain against the Setting, one a prompt.
        control: plain against plain at another batch shape.
        noise: the noise used to classify both.
        false_alarm: chance allowed to call an arm worse that is like its control.
        min_pairs: pairs without error from which an arm can pass.

    Raises:
        InvalidInput: noise or false_alarm is out of range.
    """
    _require_noise(noise)
    if not 0 < false_alarm < 1:
        raise InvalidInput(f"false_alarm must be inside 0 to 1, got {false_alarm}")
    parted, whole = _parted(arm)
    control_parted, control_whole = _parted(control)
    p_value = more_often_p(parted, whole, control_parted, control_whole)
    is_more = p_value < false_alarm
    verdict, reasons = _judged(arm, control, is_more, false_alarm, min_pairs)
    return DivergenceReport(
        pairs=len(arm),
        outcomes=_counted(arm),
        control_pairs=len(control),
        control_outcomes=_counted(control),
        exact_match=wilson_interval(whole - parted, whole),
        control_exact_match=wilson_interval(control_whole - control_parted, control_whole),
        split_positions=tuple(sorted(c.position for c in arm if c.position is not None)),
        margins=tuple(sorted(_margins(arm))),
        noise=noise,
        false_alarm=false_alarm,
        p_value=p_value,
        is_more_than_control=is_more,
        verdict=verdict,
        reasons=reasons,
    )


def _beyond_noise(
    position: int,
    margin: float | None,
    noise: float,
    reference: GreedyAnswer,
    other: GreedyAnswer,
) -> Comparison:
    shown = "an unknown margin" if margin is None else f"a margin of {margin:.3g}"
    lengths = len(reference.token_ids), len(other.token_ids)
    if position == min(lengths):
        reason = (
            f"equal up to token {position}, then one ends: {lengths[0]} and {lengths[1]} tokens"
        )
        return Comparison(outcome=Outcome.LENGTH, position=position, margin=margin, reason=reason)
    reason = f"{shown} at token {position} is beyond the noise of {noise:.3g}"
    return Comparison(outcome=Outcome.SUSPICIOUS, position=position, margin=margin, reason=reason)


def _first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return None if len(left) == len(right) else min(len(left), len(right))


def _margin_at(position: int, *answers: GreedyAnswer) -> float | None:
    given = [a.margins[position] for a in answers if position < len(a.margins)]
    known = [margin for margin in given if math.isfinite(margin) and margin >= 0]
    return min(known, default=None)


def _margins(comparisons: Sequence[Comparison]) -> list[float]:
    return [c.margin for c in comparisons if c.margin is not None]


def _counted(comparisons: Sequence[Comparison]) -> dict[Outcome, int]:
    counts = Counter(comparison.outcome for comparison in comparisons)
    return {outcome: counts[outcome] for outcome in Outcome}


def _parted(comparisons: Sequence[Comparison]) -> tuple[int, int]:
    """Return how many pairs part, and how many are without error."""
    counts = _counted(comparisons)
    whole = len(comparisons) - counts[Outcome.ERROR]
    return whole - counts[Outcome.IDENTICAL], whole


def _judged(
    arm: Sequence[Comparison],
    control: Sequence[Comparison],
    is_more: bool,
    false_alarm: float,
    min_pairs: int,
) -> tuple[Verdict, tuple[str, ...]]:
    counts, (parted, whole), (control_parted, control_whole) = (
        _counted(arm),
        _parted(arm),
        _parted(control),
    )
    if whole == 0:
        return Verdict.NO_DATA, (f"{len(arm)} pairs, none of them with two whole answers",)
    faults = [
        f"{counts[outcome]} of {whole} pairs part for another reason than a tie ({outcome})"
        for outcome in (Outcome.SUSPICIOUS, Outcome.LENGTH)
        if counts[outcome]
    ]
    if is_more:
        faults.append(
            f"{parted} of {whole} pairs part, in the control {control_parted} of {control_whole}: "
            f"more often, at a false-alarm rate of {false_alarm:g}"
        )
    if faults:
        return Verdict.FAIL, tuple(faults)
    if whole < min_pairs or control_whole < min_pairs:
        few = f"{whole} pairs and {control_whole} in the control; {min_pairs} of each are needed"
        return Verdict.INCONCLUSIVE, (few,)
    return Verdict.PASS, (f"{whole - parted} of {whole} pairs are identical, the rest near ties",)


def _require_noise(noise: float) -> None:
    if not 0 <= noise < math.inf:
        raise InvalidInput(f"noise must be 0 or more, got {noise}")
