"""What must be there before a service runs: its folder, its database at head, a way to sign in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dashboards.access import Role
from tuner.api.tokens import issue
from tuner.settings import Settings
from tuner.store import access, migrating, open_store


def prepare_database(settings: Settings, revision: str = "head") -> None:
    """Make the data folder and bring the database up to a revision.

    Raises:
        BadRequest: the URL or the revision is unknown.
        StoreUnavailable: the database does not answer or stays locked.
    """
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    migrating.upgrade(settings.database_url, revision)


def new_token(settings: Settings, name: str, role: Role, life: timedelta, by: str) -> str:
    """Make an access token in a database that is at head, and return its secret.

    Raises:
        BadRequest: the name is empty or too long.
        SchemaOutdated: the database is not at head.
    """
    store = open_store(settings.database_url)
    now = datetime.now(UTC)
    try:
        migrating.require_head(store)
        return issue(store, name=name, role=role, at=now, by=by, expires_at=now + life)
    finally:
        store.close()


def revoke_token(settings: Settings, secret: str) -> None:
    """Make a token open nothing from now on."""
    store, now = open_store(settings.database_url), datetime.now(UTC)
    try:
        with store.writing() as session:
            token = access.by_secret(session, secret, now)
            if token is not None:
                access.revoke(session, token.id, now)
    finally:
        store.close()


def sign_in_link(settings: Settings, secret: str) -> str:
    """Return the address that signs in with a token."""
    return f"{settings.public_url}/sign-in?token={secret}"
