"""When evidence has changed enough to bother an operator again.

A change is judged by one figure of a load level (``headline``). A recommendation is replaced only
where another Setting is proposed or the new mean lies outside the interval that the operator was
first shown; a rejected or rolled-back change stays away until it looks clearly better than when it
was refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collectors.records import LoadLevel, Setting
from policy.types import Advice, Interval, LoadChange, Recommendation

MIN_HALF_WIDTH = 0.01
"""No interval counts as narrower than 1 % to each side: nobody decides otherwise for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A change at one load level that an operator rejected or rolled back.

    Attributes:
        load: the load level.
        setting: Setting that was refused.
        headline: its engine total when it was refused.
        passes: target passes of the route that stood behind it then.
        recommendation: number of the recommendation.
        verb: ``rejected`` or ``rolled back``.
        who: who refused it.
        at_s: when, Unix seconds.
        why: the reason given.
    """

    load: LoadLevel
    setting: Setting
    headline: Interval
    passes: int
    recommendation: int
    verb: str
    who: str
    at_s: float
    why: str

    @property
    def returns_when(self) -> str:
        """Say what brings the change back."""
        high = _widened(self.headline)
        need = self.headline.mean + _half_width(self.headline)
        return (
            f"its engine total lies wholly above {high.high:+.0%}, or {max(1, self.passes)} more "
            f"passes of the route put its mean above {need:+.0%}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snoozed:
    """A refused change that would be proposed again, and stays away for now."""

    refusal: Refusal
    headline: Interval


def headline(change: LoadChange) -> Interval:
    """Return the figure by which a change is judged: the engine's total it brings, less 1."""
    return change.engine_total.minus_one


def changed(said: Recommendation) -> tuple[LoadChange, ...]:
    """Return the load levels at which a recommendation changes the Setting."""
    return tuple(change for change in said.changes if change.proposed != change.current)


def material_reason(shown: Recommendation, now: Recommendation) -> str | None:
    """Say why a new recommendation of a route is another one than that shown; None where it is not.

    Args:
        shown: what the operator was first shown.
        now: what is said now.
    """
    if shown.advice is not now.advice:
        return f"it says {_words(now.advice)} now"
    before = {change.load: change for change in changed(shown)}
    after = {change.load: change for change in changed(now)}
    for load in sorted({*before, *after}):
        reason = _difference(load, before.get(load), after.get(load))
        if reason is not None:
            return reason
    return None


def looks_the_same(shown: Sequence[LoadChange], now: Sequence[LoadChange]) -> bool:
    """Return whether two lists of changes read alike: same Settings, same figures in per cent."""
    return [_as_read(one) for one in shown] == [_as_read(one) for one in now]


def return_reason(refusal: Refusal, found: Interval, passes_since: int) -> str | None:
    """Say why a refused change may be proposed again; None while it may not.

    Args:
        refusal: what was refused.
        found: its engine total now.
        passes_since: target passes of the route since the refusal.
    """
    then = _widened(refusal.headline)
    if found.low > then.high:
        return "its interval lies above the one that was refused"
    is_doubled = passes_since >= max(1, refusal.passes)
    if is_doubled and found.mean > then.mean + (then.high - then.low) / 2:
        return "the evidence has doubled and its mean rose by more than half the interval's width"
    return None


def without_refused(
    said: Recommendation, refusals: Sequence[Refusal], passes_since: dict[int, int]
) -> tuple[Recommendation, tuple[Snoozed, ...]]:
    """Take out of a recommendation what was refused and has not changed materially since.

    Args:
        said: what the policy said of a route.
        refusals: what was refused on it.
        passes_since: by number of the refused recommendation, passes of the route since then.

    Returns:
        The recommendation with the Setting in force at those load levels, and what was taken out.
    """
    snoozed = tuple(_snoozed(said, refusals, passes_since))
    if not snoozed:
        return said, ()
    kept = {one.refusal.load for one in snoozed}
    changes = tuple(
        replace(change, proposed=change.current, reason=_kept_reason(change, snoozed))
        if change.load in kept
        else change
        for change in said.changes
    )
    left = any(change.proposed != change.current for change in changes)
    lines = tuple(snooze_line(one.refusal) for one in snoozed)
    reasons = (*said.reasons, *lines) if left else (*lines, *said.reasons)
    advice = said.advice if left else Advice.NO_CHANGE
    return replace(said, changes=changes, advice=advice, reasons=reasons), snoozed


def snooze_line(refusal: Refusal) -> str:
    """Say what is snoozed, why, and what brings it back."""
    return (
        f"{refusal.setting.label} at load {refusal.load.label} is snoozed: #"
        f"{refusal.recommendation} was {refusal.verb} by {refusal.who} because "
        f"{refusal.why.rstrip('.')}; it comes back when {refusal.returns_when}."
    )


def _snoozed(
    said: Recommendation, refusals: Sequence[Refusal], passes_since: dict[int, int]
) -> Iterator[Snoozed]:
    by_place = {(one.load, one.setting): one for one in refusals}
    for change in changed(said):
        refusal = by_place.get((change.load, change.proposed))
        if refusal is None:
            continue
        since = passes_since.get(refusal.recommendation, 0)
        if return_reason(refusal, headline(change), since) is None:
            yield Snoozed(refusal=refusal, headline=headline(change))


def _kept_reason(change: LoadChange, snoozed: Sequence[Snoozed]) -> str:
    refusal = next(one.refusal for one in snoozed if one.refusal.load == change.load)
    return f"{change.proposed.label} was {refusal.verb} and is snoozed. {change.reason}"


def _difference(load: LoadLevel, then: LoadChange | None, now: LoadChange | None) -> str | None:
    if then is None or now is None:
        verb = "changes" if then is None else "no longer changes"
        return f"it {verb} the Setting at load {load.label}"
    if (then.proposed, then.current) != (now.proposed, now.current):
        return f"it proposes {now.proposed.label} over {now.current.label} at load {load.label}"
    shown, found = _widened(headline(then)), headline(now).mean
    if not shown.low <= found <= shown.high:
        return (
            f"its engine total at load {load.label} is {found:+.0%} now, outside "
            f"{shown.low:+.0%} to {shown.high:+.0%}"
        )
    return None


def _as_read(change: LoadChange) -> tuple[LoadLevel, Setting, Setting, tuple[int, ...]]:
    figure = headline(change)
    read = tuple(round(100 * part) for part in (figure.low, figure.mean, figure.high))
    return change.load, change.current, change.proposed, read


def _half_width(figure: Interval) -> float:
    wide = _widened(figure)
    return (wide.high - wide.low) / 2


def _widened(figure: Interval) -> Interval:
    return Interval(
        low=min(figure.low, figure.mean - MIN_HALF_WIDTH),
        mean=figure.mean,
        high=max(figure.high, figure.mean + MIN_HALF_WIDTH),
    )


def _words(advice: Advice) -> str:
    return advice.value.replace("_", " ")
