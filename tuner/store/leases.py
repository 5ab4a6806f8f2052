"""Leases with fencing tokens: one service acts, the others read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tuner.errors import LeaseLost
from tuner.store.schema import LeaseRow
from tuner.store.statements import changed_rows, insert_missing, lock_by_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Proof of holding a lease, to be shown with every write.

    Attributes:
        name: the lease.
        token: the number it was given out under.
    """

    name: str
    token: int


def acquire(session: Session, name: str, holder: str, at: datetime, ttl_s: float) -> Fence | None:
    """Take or renew a lease; return its fence, or None where another holds it.

    The token rises whenever the lease changes hands, so that a holder that slept through its
    lease cannot pass ``require`` any more.
    """
    lock_by_name(session, f"lease {name}")
    expires_at = at + timedelta(seconds=ttl_s)
    fresh = {"name": name, "holder": holder, "token": 1, "expires_at": expires_at}
    insert_missing(session, LeaseRow, [fresh])
    row = session.get(LeaseRow, name, populate_existing=True)
    if row is None or (row.holder != holder and row.expires_at > at):
        return None
    is_new_hold = row.holder != holder or row.expires_at <= at
    token = row.token + 1 if is_new_hold else row.token
    row.holder, row.token, row.expires_at = holder, token, expires_at
    session.flush()
    return Fence(name=name, token=token)


def require(session: Session, fence: Fence) -> None:
    """Make sure, inside a writing transaction, that the lease has not changed hands.

    Raises:
        LeaseLost: it has; the transaction must be dropped.
    """
    held = session.scalars(
        select(LeaseRow.token).where(LeaseRow.name == fence.name).with_for_update(read=True)
    ).first()
    if held != fence.token:
        raise LeaseLost(
            f"lease {fence.name} has token {held} now, not {fence.token}: another service leads"
        )


def release(session: Session, fence: Fence, at: datetime) -> None:
    """Give a lease back early; nothing happens where another holds it."""
    changed_rows(
        session,
        update(LeaseRow)
        .where(LeaseRow.name == fence.name, LeaseRow.token == fence.token)
        .values(expires_at=at),
    )


def holder(session: Session, name: str, at: datetime) -> str | None:
    """Return who holds a lease; None where nobody does."""
    row = session.get(LeaseRow, name, populate_existing=True)
    return row.holder if row is not None and row.expires_at > at else None
