"""What a recommendation brought, read from the windows around the moment it came into force."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from policy.outcome import Outcome, outcomes
from policy.realised import Ran, Realised
from policy.realised import realised as compare
from policy.types import Window
from tuner.store import decisions, observations, recommendations
from tuner.store.recommendations import State, StoredRecommendation

WINDOWS_EACH_SIDE = 720
"""Half a day of windows of a minute: those nearest to the change tell most of it."""

NEWEST_WINDOWS = 60
"""Windows in which pairs of steps are looked for, an hour of minutes: what is in force now."""


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
    around = observations.around(session, stored.engine, promoted[0], WINDOWS_EACH_SIDE)
    brought = compare(stored.said, _ran(session, stored.engine, around), promoted[0])
    newest = observations.newest(session, stored.engine, NEWEST_WINDOWS)
    return brought, outcomes(stored.said, brought, _ran(session, stored.engine, newest))


def _ran(session: Session, engine: str, windows: Sequence[Window]) -> list[Ran]:
    """Return the windows that ran wholly under one plan, with that plan."""
    if not windows:
        return []
    log = decisions.plans_of(session, engine, windows[0].start_s, windows[-1].end_s)
    whole = [(one, log.throughout(one.start_s, one.end_s)) for one in windows]
    return [Ran(window=one, plan=plan) for one, plan in whole if plan is not None]
