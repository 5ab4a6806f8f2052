"""What a recommendation brought, read from the windows around the moment it came into force."""

from __future__ import annotations

from sqlalchemy.orm import Session

from policy.realised import Ran, Realised
from policy.realised import realised as compare
from tuner.store import decisions, observations, recommendations
from tuner.store.recommendations import State, StoredRecommendation

WINDOWS_EACH_SIDE = 720
"""Half a day of windows of a minute: those nearest to the change tell most of it."""


def realised(session: Session, stored: StoredRecommendation) -> Realised | None:
    """Hold predicted against realised goodput; None where the plan never came into force."""
    steps = recommendations.transitions(session, stored.id)
    promoted = [step.at.timestamp() for step in steps if step.after is State.PROMOTED]
    if not promoted:
        return None
    windows = observations.around(session, stored.engine, promoted[0], WINDOWS_EACH_SIDE)
    if not windows:
        return compare(stored.said, (), promoted[0])
    ends = windows[0].start_s, windows[-1].end_s
    log = decisions.plans_of(session, stored.engine, *ends)
    whole = [(one, log.throughout(one.start_s, one.end_s)) for one in windows]
    ran = [Ran(window=one, plan=plan) for one, plan in whole if plan is not None]
    return compare(stored.said, ran, promoted[0])
