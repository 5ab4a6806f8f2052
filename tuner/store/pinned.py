"""Pinned configurations under their digests."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from collectors.records import PinnedConfig
from collectors.records.parsing import as_object
from tuner.errors import NotFound
from tuner.store.schema import PinnedConfigRow
from tuner.store.statements import insert_missing


def remember(session: Session, config: PinnedConfig, at: datetime) -> str:
    """Store a configuration if it is new, and return its digest."""
    row = {
        "digest": config.digest,
        "model": config.model,
        "setting_label": config.setting.label,
        "created_at": at,
        "body": config.to_dict(),
    }
    insert_missing(session, PinnedConfigRow, [row])
    return config.digest


def one(session: Session, digest: str) -> PinnedConfig:
    """Return the configuration with this digest.

    Raises:
        NotFound: it was never stored.
    """
    body = session.scalars(
        select(PinnedConfigRow.body).where(PinnedConfigRow.digest == digest)
    ).first()
    if body is None:
        raise NotFound(f"there is no pinned configuration {digest}")
    return PinnedConfig.from_dict(as_object(body, f"pinned configuration {digest}"))


def listed(session: Session, limit: int = 200) -> tuple[PinnedConfig, ...]:
    """Return configurations, newest first."""
    bodies = session.scalars(
        select(PinnedConfigRow.body)
        .order_by(PinnedConfigRow.created_at.desc(), PinnedConfigRow.digest)
        .limit(limit)
    )
    return tuple(PinnedConfig.from_dict(as_object(body, "pinned")) for body in bodies)
