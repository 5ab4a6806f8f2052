"""What was done by whom, and what was refused."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.errors import BadRequest
from tuner.store.schema import AuditRow

SIGN_IN, REFUSED = "sign_in", "refused"
MAX_REASON = 500
"""Characters of a reason that somebody gives."""

_NOT_TEXT = ("Cc", "Cs")
"""Unicode's categories of control characters and of halves of a character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One act.

    Attributes:
        at: when.
        who: token name, or where somebody without a token came from.
        action: such as ``approve`` or ``sign_in``.
        target: what it was done to, such as ``recommendation 12``.
        outcome: ``done`` or ``refused``.
        detail: one line.
    """

    at: datetime
    who: str
    action: str
    target: str
    outcome: str
    detail: str = ""


def reason_line(why: str) -> str:
    """Return a reason on one line.

    Raises:
        BadRequest: it is empty, too long, or holds characters that no database keeps.
    """
    line = " ".join(why.split())
    if not 0 < len(line) <= MAX_REASON:
        raise BadRequest(f"a reason has 1 to {MAX_REASON} characters, this one has {len(line)}")
    strange = [one for one in line if unicodedata.category(one) in _NOT_TEXT]
    if strange:
        raise BadRequest(f"a reason is plain text; leave out {strange[0]!a}")
    return line


def add(session: Session, entry: AuditEntry) -> None:
    """Append an entry."""
    session.add(AuditRow(**{name: getattr(entry, name) for name in entry.__slots__}))
    session.flush()


def listed(session: Session, limit: int = 500) -> tuple[AuditEntry, ...]:
    """Return entries, newest first."""
    rows = session.scalars(select(AuditRow).order_by(AuditRow.id.desc()).limit(limit))
    return tuple(
        AuditEntry(
            at=row.at,
            who=row.who,
            action=row.action,
            target=row.target,
            outcome=row.outcome,
            detail=row.detail,
        )
        for row in rows
    )
