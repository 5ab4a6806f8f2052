"""What was brought into force, on whose word, and what was in force before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from collectors.records import Plan
from collectors.records.parsing import as_object
from tuner.errors import StateChanged
from tuner.store.schema import PlanRow
from tuner.store.statements import changed_rows


class Outcome(StrEnum):
    """How an attempt to bring a plan into force ended, or that it has not."""

    STARTED = "started"
    APPLIED = "applied"
    FAILED = "failed"


class Purpose(StrEnum):
    """What a change of the plan is for."""

    CHANGE = "change"
    EXPLORATION = "exploration"
    END_OF_EXPLORATION = "end_of_exploration"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One attempt to bring a plan into force.

    Attributes:
        id: number; 0 before it is stored.
        engine: engine it was sent to.
        recommendation: recommendation behind it; None for a plan set by hand.
        at: when.
        who: token name of an operator, or the name of a job.
        why: one line.
        outcome: started, applied or failed.
        error: why it failed, one line; None where it did not.
        plan: plan sent.
        before: plan in force before.
        read_back_digest: digest of the plan read back; None where it could not be read.
        purpose: a change that is meant to last, or an exploration and its end.
    """

    id: int = 0
    engine: str
    recommendation: int | None
    at: datetime
    who: str
    why: str
    outcome: Outcome
    error: str | None = None
    plan: Plan
    before: Plan
    read_back_digest: str | None = None
    purpose: Purpose = Purpose.CHANGE


def add(session: Session, change: PlanChange) -> int:
    """Store a change and return its number."""
    row = PlanRow(
        engine=change.engine,
        recommendation=change.recommendation,
        at=change.at,
        who=change.who,
        why=change.why,
        outcome=change.outcome,
        error=change.error,
        digest=change.plan.digest,
        before_digest=change.before.digest,
        read_back_digest=change.read_back_digest,
        body=change.plan.to_dict(),
        before=change.before.to_dict(),
        purpose=change.purpose,
    )
    session.add(row)
    session.flush()
    return row.id


def begin_again(session: Session, number: int, change: PlanChange) -> bool:
    """Make a failed change a started one again, with what is sent now; False where it is gone."""
    begun = changed_rows(
        session,
        update(PlanRow)
        .where(PlanRow.id == number, PlanRow.outcome == Outcome.FAILED)
        .values(
            at=change.at,
            why=change.why,
            outcome=Outcome.STARTED,
            digest=change.plan.digest,
            before_digest=change.before.digest,
            body=change.plan.to_dict(),
            before=change.before.to_dict(),
        ),
    )
    return begun == 1


def close(
    session: Session,
    number: int,
    outcome: Outcome,
    *,
    read_back_digest: str | None = None,
    error: str | None = None,
) -> None:
    """Note how a started change ended.

    Raises:
        StateChanged: it has ended already, elsewhere.
    """
    closed = changed_rows(
        session,
        update(PlanRow)
        .where(PlanRow.id == number, PlanRow.outcome == Outcome.STARTED)
        .values(outcome=outcome, read_back_digest=read_back_digest, error=error),
    )
    if closed != 1:
        raise StateChanged(f"plan change {number} was settled by another service meanwhile")


def listed(
    session: Session,
    engine: str,
    *,
    outcome: Outcome | None = None,
    recommendation: int | None = None,
    after: int = 0,
    limit: int = 200,
) -> tuple[PlanChange, ...]:
    """Return changes, newest first; only those after one, where its number is given."""
    query = select(PlanRow).where(PlanRow.engine == engine, PlanRow.id > after)
    if outcome is not None:
        query = query.where(PlanRow.outcome == outcome)
    if recommendation is not None:
        query = query.where(PlanRow.recommendation == recommendation)
    rows = session.scalars(query.order_by(PlanRow.id.desc()).limit(limit))
    return tuple(_change(row) for row in rows)


def outcome_of(session: Session, number: int | None) -> Outcome | None:
    """Return how a change ended; None where it is deleted."""
    found = session.scalars(select(PlanRow.outcome).where(PlanRow.id == number)).first()
    return None if found is None else Outcome(found)


def latest_applied(session: Session, engine: str) -> PlanChange | None:
    """Return the newest change that took effect; None where there was none."""
    applied = listed(session, engine, outcome=Outcome.APPLIED, limit=1)
    return applied[0] if applied else None


def open_exploration(session: Session, engine: str) -> PlanChange | None:
    """Return the exploration that was begun last and not ended; None without one."""
    row = session.scalars(
        select(PlanRow)
        .where(
            PlanRow.engine == engine,
            PlanRow.outcome != Outcome.FAILED,
            PlanRow.purpose.in_((Purpose.EXPLORATION, Purpose.END_OF_EXPLORATION)),
        )
        .order_by(PlanRow.id.desc())
        .limit(1)
    ).first()
    return None if row is None or row.purpose != Purpose.EXPLORATION else _change(row)


def _change(row: PlanRow) -> PlanChange:
    return PlanChange(
        id=row.id,
        engine=row.engine,
        recommendation=row.recommendation,
        at=row.at,
        who=row.who,
        why=row.why,
        outcome=Outcome(row.outcome),
        error=row.error,
        plan=Plan.from_dict(as_object(row.body, f"plan {row.id}")),
        before=Plan.from_dict(as_object(row.before, f"plan before {row.id}")),
        read_back_digest=row.read_back_digest,
        purpose=Purpose(row.purpose),
    )
