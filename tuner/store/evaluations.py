"""Verdicts on pinned configurations by route: what must be there before a Setting is approved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from collectors.records.parsing import items
from tuner.store.coding import texts
from tuner.store.schema import EvaluationRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The verdict on one configuration for one route.

    Attributes:
        id: number; 0 before it is stored.
        digest: the pinned configuration.
        at: when it was given.
        is_passing: whether the configuration may be put into force.
        reasons: sentences behind the verdict.
        divergence: number of the divergence report; None where there was none.
        replay: number of the replay; None where there was none.
        route: the route whose requests it stands on; None in verdicts made before routes counted.
        load: label of the load level at which speed was measured; None where it was not.
        outputs_pass: whether outputs are the same, whatever the speed.
    """

    id: int = 0
    digest: str
    at: datetime
    is_passing: bool
    reasons: tuple[str, ...]
    divergence: int | None
    replay: int | None
    route: str | None = None
    load: str | None = None
    outputs_pass: bool = False


def add(session: Session, evaluation: Evaluation) -> int:
    """Store a verdict on a configuration that is in ``pinned`` already; return its number."""
    row = EvaluationRow(
        digest=evaluation.digest,
        at=evaluation.at,
        is_passing=evaluation.is_passing,
        reasons=list(evaluation.reasons),
        divergence=evaluation.divergence,
        replay=evaluation.replay,
        route=evaluation.route,
        load=evaluation.load,
        outputs_pass=evaluation.outputs_pass,
    )
    session.add(row)
    session.flush()
    return row.id


def latest(session: Session, digest: str, route: str | None) -> Evaluation | None:
    """Return the newest verdict on a configuration for a route; None where there is none."""
    row = session.scalars(
        select(EvaluationRow)
        .where(EvaluationRow.digest == digest, EvaluationRow.route == route)
        .order_by(EvaluationRow.id.desc())
        .limit(1)
    ).first()
    return None if row is None else _evaluation(row)


def listed(session: Session, limit: int = 200) -> tuple[Evaluation, ...]:
    """Return verdicts, newest first."""
    rows = session.scalars(select(EvaluationRow).order_by(EvaluationRow.id.desc()).limit(limit))
    return tuple(_evaluation(row) for row in rows)


def _evaluation(row: EvaluationRow) -> Evaluation:
    return Evaluation(
        id=row.id,
        digest=row.digest,
        at=row.at,
        is_passing=row.is_passing,
        reasons=texts(items({"reasons": row.reasons}, "reasons")),
        divergence=row.divergence,
        replay=row.replay,
        route=row.route,
        load=row.load,
        outputs_pass=row.outputs_pass,
    )
