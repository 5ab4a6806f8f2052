"""Evaluations of one Setting on one route, asked for or under way: one is open at most."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from tuner.store.schema import GateRunRow
from tuner.store.statements import changed_rows, insert_if_missing

SERVICE = "evaluate"
"""Who asks where the service begins an evaluation by itself."""


class GateState(StrEnum):
    """How far an evaluation got."""

    ASKED = "asked"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRun:
    """One evaluation, asked for or under way.

    Attributes:
        id: number.
        engine: engine it runs on.
        route: route whose requests it replays.
        digest: pinned configuration of the Setting.
        state: how far it got.
        phase: what it does now: ``outputs`` or ``speed``; empty before it began.
        done: answers or pairs had in this phase.
        total: answers or pairs of this phase at most.
        who: who asked for it.
        asked_at: when.
        moved_at: when it last got further.
        ended_at: when it ended; None while it is open.
        error: why it failed, one line; None where it did not.
        evaluation: number of the verdict; None without one.
    """

    id: int
    engine: str
    route: str
    digest: str
    state: GateState
    phase: str
    done: int
    total: int
    who: str
    asked_at: datetime
    moved_at: datetime
    ended_at: datetime | None
    error: str | None
    evaluation: int | None


def ask(session: Session, *, engine: str, route: str, digest: str, who: str, at: datetime) -> bool:
    """Ask for an evaluation of a configuration that is in ``pinned`` already.

    Returns:
        False where one is open already, which then answers this request too.
    """
    row = {
        "engine": engine,
        "route": route,
        "digest": digest,
        "state": GateState.ASKED,
        "phase": "",
        "done": 0,
        "total": 0,
        "who": who,
        "asked_at": at,
        "moved_at": at,
    }
    return insert_if_missing(session, GateRunRow, row)


def begin(session: Session, number: int, at: datetime) -> bool:
    """Take an evaluation that was asked for; False where another service was first."""
    taken = changed_rows(
        session,
        update(GateRunRow)
        .where(GateRunRow.id == number, GateRunRow.state == GateState.ASKED)
        .values(state=GateState.RUNNING, moved_at=at),
    )
    return taken == 1


def note_progress(
    session: Session, number: int, *, phase: str, done: int, total: int, at: datetime
) -> None:
    """Note how far an open evaluation is."""
    changed_rows(
        session,
        update(GateRunRow)
        .where(GateRunRow.id == number, GateRunRow.ended_at.is_(None))
        .values(phase=phase, done=done, total=total, moved_at=at),
    )


def finish(
    session: Session,
    number: int,
    *,
    at: datetime,
    evaluation: int | None = None,
    error: str | None = None,
) -> None:
    """Close an open evaluation, with its verdict or with the reason why there is none."""
    state = GateState.DONE if error is None else GateState.FAILED
    changed_rows(
        session,
        update(GateRunRow)
        .where(GateRunRow.id == number, GateRunRow.ended_at.is_(None))
        .values(state=state, ended_at=at, moved_at=at, evaluation=evaluation, error=error),
    )


def fail_silent(session: Session, moved_before: datetime, at: datetime) -> int:
    """Close evaluations that began and got no further for long; return how many there were."""
    return changed_rows(
        session,
        update(GateRunRow)
        .where(GateRunRow.state == GateState.RUNNING, GateRunRow.moved_at < moved_before)
        .values(state=GateState.FAILED, ended_at=at, error="its service ended in the middle"),
    )


def delete_before(session: Session, ended_before: datetime) -> int:
    """Delete evaluations that ended before a moment, verdicts kept; return how many went."""
    return changed_rows(session, delete(GateRunRow).where(GateRunRow.ended_at < ended_before))


def asked(session: Session, engine: str) -> tuple[GateRun, ...]:
    """Return what was asked for and nobody has begun, oldest first."""
    rows = session.scalars(
        select(GateRunRow)
        .where(GateRunRow.engine == engine, GateRunRow.state == GateState.ASKED)
        .order_by(GateRunRow.id)
    )
    return tuple(_run(row) for row in rows)


def latest(session: Session, *, engine: str, route: str, digest: str) -> GateRun | None:
    """Return the newest evaluation of a configuration on a route; None where there is none."""
    row = session.scalars(
        select(GateRunRow)
        .where(GateRunRow.engine == engine, GateRunRow.route == route, GateRunRow.digest == digest)
        .order_by(GateRunRow.id.desc())
        .limit(1)
        .execution_options(populate_existing=True)
    ).first()
    return None if row is None else _run(row)


def _run(row: GateRunRow) -> GateRun:
    return GateRun(
        id=row.id,
        engine=row.engine,
        route=row.route,
        digest=row.digest,
        state=GateState(row.state),
        phase=row.phase,
        done=row.done,
        total=row.total,
        who=row.who,
        asked_at=row.asked_at,
        moved_at=row.moved_at,
        ended_at=row.ended_at,
        error=row.error,
        evaluation=row.evaluation,
    )
