"""Who did what, from all that keeps a record of it: audit, transitions, changes of the plan."""

from __future__ import annotations

from sqlalchemy.orm import Session

from dashboards.views import AuditLine
from tuner.store import audit, plans, recommendations
from tuner.store.plans import Outcome
from tuner.store.recommendations import StoredRecommendation

MAX_LINES = 500
_DECISION = "recommendation."
_PLAN_OUTCOMES = {Outcome.APPLIED: "done", Outcome.FAILED: "failed", Outcome.STARTED: "running"}


def trail_of(session: Session, engine: str) -> tuple[AuditLine, ...]:
    """Return what was done, newest first.

    A decision that was carried out is told by its transitions, whoever took it and by whichever
    way; the audit adds what was refused, sign-ins and tokens.
    """
    lines = [*_audited(session), *_decided(session, engine), *_applied(session, engine)]
    return tuple(sorted(lines, key=lambda line: line.at, reverse=True)[:MAX_LINES])


def _audited(session: Session) -> list[AuditLine]:
    return [
        AuditLine(
            at=entry.at,
            who=entry.who,
            what=entry.action,
            target=entry.target,
            outcome=entry.outcome,
            detail=entry.detail,
        )
        for entry in audit.listed(session)
        if entry.outcome != "done" or not entry.action.startswith(_DECISION)
    ]


def _decided(session: Session, engine: str) -> list[AuditLine]:
    return [
        line
        for stored in recommendations.listed(session, engine=engine)
        for line in _steps_of(session, stored)
    ]


def _steps_of(session: Session, stored: StoredRecommendation) -> list[AuditLine]:
    return [
        AuditLine(
            at=step.at,
            who=step.who,
            what=f"{_DECISION}{step.after}",
            target=f"recommendation {stored.id}, route {stored.route}",
            outcome="done",
            detail=step.why,
        )
        for step in recommendations.transitions(session, stored.id)
        if step.before is not None
    ]


def _applied(session: Session, engine: str) -> list[AuditLine]:
    return [
        AuditLine(
            at=change.at,
            who=change.who,
            what="plan.apply",
            target=f"plan {change.plan.digest[:12]} on {engine}",
            outcome=_PLAN_OUTCOMES[change.outcome],
            detail=change.error or change.why,
        )
        for change in plans.listed(session, engine)
    ]
