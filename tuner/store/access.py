"""Access tokens, by hash only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tuner.errors import BadRequest, NotFound
from tuner.store.schema import AccessTokenRow
from tuner.store.statements import changed_rows

ROLES = ("viewer", "operator", "admin")
"""What a token may do, each including the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """A token without its secret.

    Attributes:
        id: number.
        name: who uses it; written into every decision.
        role: one of ROLES.
        created_at: when it was made.
        expires_at: when it ends; None for never.
        revoked_at: when it was revoked; None where it was not.
        sign_outs: how often its sessions were signed out of.
    """

    id: int
    name: str
    role: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    sign_outs: int = 0

    def is_valid(self, at: datetime) -> bool:
        """Return whether the token opens anything at a moment."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)


def hash_of(secret: str) -> str:
    """Return the hash under which a secret is kept."""
    return hashlib.sha256(secret.encode()).hexdigest()


def add(
    session: Session,
    *,
    name: str,
    role: str,
    secret: str,
    at: datetime,
    expires_at: datetime | None = None,
) -> AccessToken:
    """Store a token by the hash of its secret.

    Raises:
        BadRequest: the role is unknown, the name is empty, or the secret is shorter than 16.
    """
    if role not in ROLES:
        raise BadRequest(f"role {role!r} is unknown; use one of: {', '.join(ROLES)}")
    if not name.strip() or len(name) > 128:
        raise BadRequest(f"token name {name!r} must have 1 to 128 characters")
    if len(secret) < 16:
        raise BadRequest(f"a token needs at least 16 characters, got {len(secret)}")
    row = AccessTokenRow(
        name=name, token_hash=hash_of(secret), role=role, created_at=at, expires_at=expires_at
    )
    session.add(row)
    session.flush()
    return _token(row)


def by_secret(session: Session, secret: str, at: datetime) -> AccessToken | None:
    """Return the valid token with this secret; None where there is none."""
    row = session.scalars(
        select(AccessTokenRow).where(AccessTokenRow.token_hash == hash_of(secret))
    ).first()
    token = None if row is None else _token(row)
    return token if token is not None and token.is_valid(at) else None


def one(session: Session, number: int) -> AccessToken:
    """Return one token, valid or not.

    Raises:
        NotFound: there is none with this number.
    """
    row = session.get(AccessTokenRow, number, populate_existing=True)
    if row is None:
        raise NotFound(f"there is no access token {number}")
    return _token(row)


def listed(session: Session) -> tuple[AccessToken, ...]:
    """Return all tokens, newest first."""
    rows = session.scalars(select(AccessTokenRow).order_by(AccessTokenRow.id.desc()))
    return tuple(_token(row) for row in rows)


def revoke(session: Session, number: int, at: datetime) -> AccessToken:
    """Revoke a token; one that is revoked already keeps its date.

    Raises:
        NotFound: there is none with this number.
    """
    changed_rows(
        session,
        update(AccessTokenRow)
        .where(AccessTokenRow.id == number, AccessTokenRow.revoked_at.is_(None))
        .values(revoked_at=at),
    )
    return one(session, number)


def sign_out(session: Session, number: int) -> None:
    """End every session that was opened with a token so far."""
    changed_rows(
        session,
        update(AccessTokenRow)
        .where(AccessTokenRow.id == number)
        .values(sign_outs=AccessTokenRow.sign_outs + 1),
    )


def _token(row: AccessTokenRow) -> AccessToken:
    return AccessToken(
        id=row.id,
        name=row.name,
        role=row.role,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        sign_outs=row.sign_outs,
    )
