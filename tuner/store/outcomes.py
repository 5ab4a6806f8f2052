"""What recommendations in force brought, as it was measured last: one row a load level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from collectors.records import Setting, load_level_named
from collectors.records.parsing import as_object
from policy.outcome import Basis, Outcome
from tuner.store.coding import interval_from_list, interval_to_list
from tuner.store.schema import OutcomeRow, RecommendationRow
from tuner.store.statements import insert_rows

MAX_RECORD = 200
"""Outcomes that count for the trust in predictions: the newest."""


def note(session: Session, number: int, found: Sequence[Outcome], at: datetime) -> None:
    """Replace what was measured of a recommendation; nothing is kept of what cannot be measured."""
    if not found:
        return
    session.execute(delete(OutcomeRow).where(OutcomeRow.recommendation == number))
    rows = [
        {
            "recommendation": number,
            "load": one.load.label,
            "setting": one.setting.to_dict(),
            "basis": one.basis,
            "predicted": interval_to_list(one.predicted),
            "realised": interval_to_list(one.realised),
            "at": at,
        }
        for one in found
    ]
    insert_rows(session, OutcomeRow, rows)


def of(session: Session, numbers: Sequence[int]) -> Mapping[int, tuple[Outcome, ...]]:
    """Return what was measured by recommendation, lowest load level first."""
    rows = session.scalars(select(OutcomeRow).where(OutcomeRow.recommendation.in_(numbers)))
    found: dict[int, list[Outcome]] = {}
    for row in rows:
        found.setdefault(row.recommendation, []).append(_outcome(row))
    return {
        number: tuple(sorted(parts, key=lambda one: one.load)) for number, parts in found.items()
    }


def record(session: Session, engine: str) -> tuple[Outcome, ...]:
    """Return the newest outcomes of an engine, those of replaced and rolled-back ones too."""
    rows = session.scalars(
        select(OutcomeRow)
        .join(RecommendationRow, RecommendationRow.id == OutcomeRow.recommendation)
        .where(RecommendationRow.engine == engine)
        .order_by(OutcomeRow.id.desc())
        .limit(MAX_RECORD)
    )
    return tuple(_outcome(row) for row in rows)


def _outcome(row: OutcomeRow) -> Outcome:
    named = f"outcome of recommendation {row.recommendation}"
    return Outcome(
        load=load_level_named(row.load),
        setting=Setting.from_dict(as_object(row.setting, named)),
        basis=Basis(row.basis),
        predicted=interval_from_list(row.predicted),
        realised=interval_from_list(row.realised),
    )
