"""Making access tokens. The secret is shown once and kept as a hash."""

from __future__ import annotations

import secrets
from datetime import datetime

from dashboards.access import Role
from tuner.store import Store, access, audit

TOKEN_PREFIX = "spt_"
MAX_NAME = 64


def issue(
    store: Store,
    *,
    name: str,
    role: Role,
    at: datetime,
    by: str,
    expires_at: datetime | None = None,
) -> str:
    """Make a token, note who made it, and return it; it cannot be read again.

    Raises:
        BadRequest: the name is empty or too long.
    """
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    with store.writing() as session:
        token = access.add(
            session, name=name, role=role, secret=secret, at=at, expires_at=expires_at
        )
        audit.add(
            session,
            audit.AuditEntry(
                at=at,
                who=by,
                action="token.create",
                target=f"token {token.id} {name!r}",
                outcome="done",
                detail=f"role {role}",
            ),
        )
    return secret
