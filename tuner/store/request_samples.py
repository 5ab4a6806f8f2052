"""What single finished requests showed, for questions that sums by route cannot answer."""

from __future__ import annotations

from sqlalchemy import and_, not_, select
from sqlalchemy.orm import Session

from collectors.records import CALIBRATION_ROUTE, Setting
from collectors.records.parsing import items
from policy.acceptance_features import RequestSample
from tuner.store import arms
from tuner.store.coding import integers
from tuner.store.schema import RequestTraceRow


def newest(session: Session, engine: str, limit: int) -> tuple[RequestSample, ...]:
    """Return the newest requests that drafted, live and replayed, newest first.

    A request that ran under several Settings counts for its last one. Those of a calibration say
    nothing of any traffic and are left out.
    """
    rows = session.scalars(
        select(RequestTraceRow)
        .where(
            RequestTraceRow.engine == engine,
            RequestTraceRow.drafted > 0,
            not_(and_(RequestTraceRow.route == CALIBRATION_ROUTE, RequestTraceRow.is_shadow)),
        )
        .order_by(RequestTraceRow.at_s.desc())
        .limit(limit)
    )
    settings = arms.by_key(session)
    found = (_sample(row, settings[row.setting]) for row in rows)
    return tuple(sample for sample in found if sample.setting.k)


def _sample(row: RequestTraceRow, setting: Setting) -> RequestSample:
    counts = {"attempts": row.attempts, "accepts": row.accepts}
    return RequestSample(
        route=row.route,
        setting=setting,
        end_s=row.at_s,
        temperature=row.temperature,
        context_tokens=row.prompt_tokens + row.completion_tokens,
        has_grammar=row.has_grammar,
        attempts=integers(items(counts, "attempts")),
        accepts=integers(items(counts, "accepts")),
    )
