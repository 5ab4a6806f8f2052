"""What the jobs, audit and token pages show."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dashboards.access import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run of a job.

    Attributes:
        id: number.
        job: name of the job.
        due_at: when it should have started.
        started_at: when it did.
        ended_at: when it ended; None while it runs.
        outcome: running, ok, failed or interrupted.
        duration_s: time it took; None while it runs.
        note: error or remark, one line; empty where there is none.
    """

    id: int
    job: str
    due_at: datetime
    started_at: datetime
    ended_at: datetime | None
    outcome: str
    duration_s: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A job of the timetable.

    Attributes:
        name: its name.
        schedule: when it runs, in words.
        does: what it does, one sentence.
        last: its newest run; None before the first.
    """

    name: str
    schedule: str
    does: str
    last: JobRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsView:
    """The jobs page: the timetable and the newest runs."""

    timetable: tuple[JobLine, ...]
    runs: tuple[JobRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One thing that somebody did.

    Attributes:
        at: when.
        who: name of the token, or of the job.
        what: such as ``recommendation.approve`` or ``token.create``.
        target: what it was done to.
        outcome: done or refused.
        detail: reason or remark, one line.
    """

    at: datetime
    who: str
    what: str
    target: str
    outcome: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLine:
    """An access token; the token itself is never kept.

    Attributes:
        id: number.
        name: what its holder is called in transitions.
        role: what it allows.
        created_at: when it was made.
        expires_at: when it ends; None for never.
        revoked_at: when it was revoked; None where it was not.
    """

    id: int
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
