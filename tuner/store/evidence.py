"""The figures of each recommendation over its revisions, appended and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import UnaryExpression, func, select
from sqlalchemy.orm import Session

from collectors.records.parsing import JsonObject, as_object, integer
from policy.evidence_amount import EvidenceAmount
from policy.types import Advice, LoadChange, Recommendation
from tuner.store.coding import change_from_dict, change_to_dict
from tuner.store.schema import (
    RecommendationEvidenceRow,
    RecommendationRow,
    ReplayPairRow,
    ReplayRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A recommendation's figures as they were shown from a moment on.

    Attributes:
        number: 1 when it was made, one more each time it was updated in place.
        at: when.
        advice: what it said.
        changes: its load levels with their figures.
        amount: evidence behind it.
    """

    number: int
    at: datetime
    advice: Advice
    changes: tuple[LoadChange, ...]
    amount: EvidenceAmount


def append(
    session: Session,
    number: int,
    revision: int,
    said: Recommendation,
    *,
    amount: EvidenceAmount,
    facts: str,
    at: datetime,
) -> None:
    """Append the figures of a recommendation's revision."""
    session.add(
        RecommendationEvidenceRow(
            recommendation=number,
            revision=revision,
            at=at,
            facts=facts,
            advice=said.advice,
            changes=[change_to_dict(change) for change in said.changes],
            amount=asdict(amount),
        )
    )
    session.flush()


def revisions(session: Session, number: int) -> tuple[Revision, ...]:
    """Return a recommendation's revisions, oldest first; none from before schema 0005."""
    rows = session.scalars(
        select(RecommendationEvidenceRow)
        .where(RecommendationEvidenceRow.recommendation == number)
        .order_by(RecommendationEvidenceRow.revision)
    )
    return tuple(_revision(row) for row in rows)


def first(session: Session, number: int) -> Revision | None:
    """Return what a recommendation said when it was made; None from before schema 0005."""
    return _one(session, number, RecommendationEvidenceRow.revision.asc())


def newest(session: Session, number: int) -> Revision | None:
    """Return what a recommendation says now; None from before schema 0005."""
    return _one(session, number, RecommendationEvidenceRow.revision.desc())


def facts_of(session: Session, engine: str) -> str | None:
    """Return the digest of the facts behind an engine's newest figures; None before the first."""
    return session.scalars(
        select(RecommendationEvidenceRow.facts)
        .join(RecommendationRow, RecommendationRow.id == RecommendationEvidenceRow.recommendation)
        .where(RecommendationRow.engine == engine)
        .order_by(RecommendationEvidenceRow.id.desc())
        .limit(1)
    ).first()


def replay_pairs(session: Session, engine: str) -> Mapping[str, int]:
    """Return by route how many valid pairs its replays have."""
    rows = session.execute(
        select(ReplayPairRow.route, func.count())
        .join(ReplayRow, ReplayRow.id == ReplayPairRow.replay)
        .where(ReplayRow.engine == engine, ReplayPairRow.void_reason.is_(None))
        .group_by(ReplayPairRow.route)
    )
    return {route: int(count) for route, count in rows}


def _one(session: Session, number: int, order: UnaryExpression[int]) -> Revision | None:
    row = session.scalars(
        select(RecommendationEvidenceRow)
        .where(RecommendationEvidenceRow.recommendation == number)
        .order_by(order)
        .limit(1)
    ).first()
    return None if row is None else _revision(row)


def _revision(row: RecommendationEvidenceRow) -> Revision:
    named = f"evidence of recommendation {row.recommendation}"
    changes = row.changes if isinstance(row.changes, list) else []
    return Revision(
        number=row.revision,
        at=row.at,
        advice=Advice(row.advice),
        changes=tuple(change_from_dict(as_object(one, named)) for one in changes),
        amount=_amount(as_object(row.amount, named)),
    )


def _amount(data: JsonObject) -> EvidenceAmount:
    return EvidenceAmount(
        passes=integer(data, "passes"),
        windows=integer(data, "windows"),
        requests=integer(data, "requests"),
        replay_pairs=integer(data, "replay_pairs"),
    )
