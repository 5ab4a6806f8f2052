"""What a recommendation brought, read from the windows around the moment it came into force."""

from __future__ import annotations

from sqlalchemy.orm import Session

from policy.outcome import Outcome, outcomes
from policy.realised import Ran, Realised
from policy.realised import realised as compare
from tuner.store import decisions, observations, recommendations
from tuner.store.recommendations import State, StoredRecommendation

WINDOWS_EACH_SIDE = 720
"""Half a day of windows of a minute: those nearest to the change tell most of it."""


def realised(session: Session, stored: StoredRecommendation) -> Realised | None:
    """Hold predicted against realised goodput; None where the plan never came into force."""
    found = measured(session, stored)
    return None if found is None else found[0]


def measured(
    session: Session, stored: StoredRecommendation
) -> tuple[Realised, tuple[Outcome, ...]] | None:
    """Return rates before and since, and predicted beside measured figures; None likewise."""
    steps = recommendations.transitions(session, stored.id)
    promoted = [step.at.timestamp() for step in steps if step.after is State.PROMOTED]
    if not promoted:
        return None
    ran = _ran(session, stored.engine, promoted[0])
    brought = compare(stored.said, ran, promoted[0])
    return brought, outcomes(stored.said, ran, brought)


def _ran(session: Session, engine: str, at_s: float) -> list[Ran]:
    windows = observations.around(session, engine, at_s, WINDOWS_EACH_SIDE)
    if not windows:
        return []
    log = decisions.plans_of(session, engine, windows[0].start_s, windows[-1].end_s)
    whole = [(one, log.throughout(one.start_s, one.end_s)) for one in windows]
    return [Ran(window=one, plan=plan) for one, plan in whole if plan is not None]
