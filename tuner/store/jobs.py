"""Runs of jobs: one row a run, one run a due time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from tuner.store.schema import JobRunRow
from tuner.store.statements import changed_rows, insert_if_missing


class RunOutcome(StrEnum):
    """How a run ended, or that it has not."""

    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run of a job.

    Attributes:
        id: number.
        job: name in the timetable.
        due_key: names the due time; unique within the job.
        holder: service that ran it.
        due_at: when it was due.
        started_at: when it started.
        ended_at: when it ended; None while it runs.
        outcome: how it ended.
        duration_s: how long it took, in seconds; None while it runs.
        detail: what it did, one line.
        error: why it failed, one line; None where it did not.
    """

    id: int
    job: str
    due_key: str
    holder: str
    due_at: datetime
    started_at: datetime
    ended_at: datetime | None
    outcome: RunOutcome
    duration_s: float | None
    detail: str
    error: str | None


def start(
    session: Session, *, job: str, due_key: str, due_at: datetime, holder: str, at: datetime
) -> int | None:
    """Open the run of a due time; None where it was opened before, here or elsewhere."""
    row = {
        "job": job,
        "due_key": due_key,
        "holder": holder,
        "due_at": due_at,
        "started_at": at,
        "outcome": RunOutcome.RUNNING,
        "detail": "",
    }
    is_ours = insert_if_missing(session, JobRunRow, row)
    return _id_of(session, job, due_key) if is_ours else None


def finish(
    session: Session,
    number: int,
    *,
    outcome: RunOutcome,
    at: datetime,
    duration_s: float,
    detail: str = "",
    error: str | None = None,
) -> None:
    """Close a run that is still open."""
    changed_rows(
        session,
        update(JobRunRow)
        .where(JobRunRow.id == number, JobRunRow.ended_at.is_(None))
        .values(outcome=outcome, ended_at=at, duration_s=duration_s, detail=detail, error=error),
    )


def interrupt_open(session: Session, at: datetime) -> int:
    """Close runs whose service died in the middle, and return how many there were."""
    return changed_rows(
        session,
        update(JobRunRow)
        .where(JobRunRow.outcome == RunOutcome.RUNNING)
        .values(
            outcome=RunOutcome.INTERRUPTED, ended_at=at, error="the service ended during this run"
        ),
    )


def listed(session: Session, *, job: str | None = None, limit: int = 200) -> tuple[JobRun, ...]:
    """Return runs, newest first."""
    query = select(JobRunRow).order_by(JobRunRow.id.desc()).limit(limit)
    if job is not None:
        query = query.where(JobRunRow.job == job)
    return tuple(_run(row) for row in session.scalars(query))


def latest_by_job(session: Session) -> dict[str, JobRun]:
    """Return the newest run of each job."""
    newest = select(func.max(JobRunRow.id)).group_by(JobRunRow.job)
    rows = session.scalars(select(JobRunRow).where(JobRunRow.id.in_(newest)))
    return {row.job: _run(row) for row in rows}


def delete_before(session: Session, before: datetime) -> int:
    """Delete runs that ended before a moment, and return how many went."""
    return changed_rows(session, delete(JobRunRow).where(JobRunRow.ended_at < before))


def _id_of(session: Session, job: str, due_key: str) -> int | None:
    return session.scalars(
        select(JobRunRow.id).where(JobRunRow.job == job, JobRunRow.due_key == due_key)
    ).first()


def _run(row: JobRunRow) -> JobRun:
    return JobRun(
        id=row.id,
        job=row.job,
        due_key=row.due_key,
        holder=row.holder,
        due_at=row.due_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        outcome=RunOutcome(row.outcome),
        duration_s=row.duration_s,
        detail=row.detail,
        error=row.error,
    )
