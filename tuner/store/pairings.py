"""Reference steps of a span held against the drafting steps beside them, from the stored steps."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from collectors.records import load_level_named
from policy.pairing import PairedStep, StepPairing, paired
from tuner.store.counts import STEP_SECONDS, Span
from tuner.store.schema import StepGroupRow, StepRow


def step_pairings(session: Session, span: Span) -> tuple[StepPairing, ...]:
    """Pair the live reference steps of a span; empty where it has none."""
    first = select(StepRow.seq).where(span.covers(StepRow), StepRow.is_reference.is_(True)).limit(1)
    if session.scalars(first).first() is None:
        return ()
    rows = session.execute(
        select(StepRow, STEP_SECONDS)
        .where(span.covers(StepRow))
        .order_by(StepRow.cursor, StepRow.seq)
    )
    tokens = _tokens(session, span)
    return paired([_step(row, step_s, tokens) for row, step_s in rows])


def _step(row: StepRow, step_s: float, tokens: Mapping[tuple[int, int], int]) -> PairedStep:
    return PairedStep(
        boot=row.cursor,
        load=load_level_named(row.load),
        plan_digest=row.plan_digest,
        rows=row.rows,
        step_s=step_s,
        tokens=tokens.get((row.cursor, row.seq), 0),
        is_reference=row.is_reference,
        is_comparable=row.rows > 0 and not row.shadow_rows and not row.prefill_tokens,
    )


def _tokens(session: Session, span: Span) -> dict[tuple[int, int], int]:
    """Return the tokens that each step delivered, by boot and sequence number."""
    group = StepGroupRow
    counted = session.execute(
        select(group.cursor, group.seq, func.sum(group.tokens))
        .where(span.covers(group))
        .group_by(group.cursor, group.seq)
    )
    return {(cursor, seq): int(tokens) for cursor, seq, tokens in counted}
