"""Step and draft times of a span by shape, at the span's usual pace of the machine.

What slows all steps of a moment alike is taken out first (``policy.pace``), so that shapes timed at
different moments can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from collectors.records import Method
from collectors.records.parsing import member
from policy.pace import BLOCK_S, PacedSteps, steps_at_equal_pace
from policy.statistics import Floats, Ints
from policy.types import DraftObservation, StepCost
from tuner.store.counts import Span
from tuner.store.schema import StepDraftRow, StepRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """What steps and drafting took in a span.

    Attributes:
        steps: steps without prefill by shape, drafting left out.
        drafts: drafting rounds by method and shape.
    """

    steps: tuple[StepCost, ...]
    drafts: tuple[DraftObservation, ...]


def step_times(session: Session, span: Span) -> StepTimes:
    """Read the times of a span, context lengths in buckets of a power of two."""
    seconds = StepRow.verify_s + StepRow.sample_s + StepRow.other_s
    rows = session.execute(
        select(StepRow.rows, StepRow.positions, StepRow.context_bucket, seconds, StepRow.at_s)
        .where(span.covers(StepRow), StepRow.prefill_tokens == 0, StepRow.rows > 0, seconds > 0)
        .order_by(StepRow.at_s)
    ).all()
    if not rows:
        return StepTimes(steps=(), drafts=_draft_costs(session, span, lambda _: 1.0))
    table = np.array([tuple(row) for row in rows], dtype=np.float64)
    shapes, place = np.unique(table[:, :3].astype(np.int64), axis=0, return_inverse=True)
    place = place.reshape(-1)
    paced = steps_at_equal_pace(place, table[:, 3], table[:, 4])
    slowness = _slowness(paced, table[:, 4])
    return StepTimes(
        steps=tuple(
            _step_cost(shape, paced, np.flatnonzero(place == number))
            for number, shape in enumerate(shapes.tolist())
        ),
        drafts=_draft_costs(session, span, slowness),
    )


def _step_cost(shape: Iterable[int], paced: PacedSteps, held: Ints) -> StepCost:
    rows, positions, bucket = shape
    seconds = paced.seconds[held]
    return StepCost(
        rows=rows,
        positions=positions,
        context_tokens=bucket + bucket // 2,
        steps=len(held),
        total_s=float(seconds.sum()),
        total_square_s2=float(np.square(seconds).sum()),
        blocks=len(np.unique(paced.block[held])),
    )


def _slowness(paced: PacedSteps, at_s: Floats) -> Callable[[float], float]:
    """Return what tells the pace of a moment; 1 where no step was timed then."""
    number = np.floor(at_s / BLOCK_S).astype(np.int64)
    ratios = np.exp(paced.pace[paced.block])
    by_block = dict(zip(number.tolist(), ratios.tolist(), strict=True))
    return lambda moment: by_block.get(int(moment // BLOCK_S), 1.0)


def _draft_costs(
    session: Session, span: Span, slowness: Callable[[float], float]
) -> tuple[DraftObservation, ...]:
    draft = StepDraftRow
    rows = session.execute(
        select(draft.method, draft.rows, draft.depth, draft.seconds, draft.at_s).where(
            span.covers(draft)
        )
    )
    found: dict[tuple[str, int, int], list[float]] = {}
    for method, count, depth, seconds, at_s in rows:
        found.setdefault((method, count, depth), []).append(seconds / slowness(at_s))
    return tuple(
        DraftObservation(
            method=member(Method, method, "method"),
            rows=count,
            depth=depth,
            rounds=len(taken),
            total_s=sum(taken),
        )
        for (method, count, depth), taken in sorted(found.items())
    )
