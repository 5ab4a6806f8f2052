"""Captured requests, already redacted: bounded per route, deleted by age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from collectors.records import CapturedRequest
from collectors.records.parsing import as_object, items
from tuner.store.coding import integers
from tuner.store.facts import Cursor, move_cursor
from tuner.store.schema import CaptureRow
from tuner.store.statements import changed_rows, insert_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCapture:
    """A captured request as it is on disk.

    Attributes:
        id: number.
        engine: engine it came from.
        redactions: places that were blanked out; where there are any, ``request.prompt_ids`` is
            empty and the prompt must be tokenised again.
        request: the request.
    """

    id: int
    engine: str
    redactions: int
    request: CapturedRequest


def add(
    session: Session,
    cursor: Cursor,
    captured: Sequence[tuple[CapturedRequest, int]],
    *,
    last_seq: int,
    lost: int,
) -> None:
    """Store redacted requests with their numbers of redactions, and move the capture cursor.

    Raises:
        CursorMoved: another reader was first; the transaction must be dropped.
    """
    if last_seq == cursor.last_seq:
        return
    move_cursor(session, cursor, last_seq, lost)
    insert_rows(session, CaptureRow, [_row(cursor, *pair) for pair in captured])


def listed(
    session: Session,
    engine: str,
    *,
    route: str | None = None,
    limit: int = 200,
    is_decoding: bool = False,
) -> tuple[StoredCapture, ...]:
    """Return captured requests in order of arrival, the newest ``limit`` of them.

    With ``is_decoding`` those answered with one token are left out: they had no decode pass.
    """
    query = select(CaptureRow).where(CaptureRow.engine == engine)
    if is_decoding:
        query = query.where(CaptureRow.completion_tokens != 1)
    if route is not None:
        query = query.where(CaptureRow.route == route)
    rows = session.scalars(
        query.order_by(CaptureRow.at_s.desc(), CaptureRow.id.desc()).limit(limit)
    )
    return tuple(_stored(row) for row in reversed(rows.all()))


def count_by_route(session: Session, engine: str, *, is_decoding: bool = False) -> dict[str, int]:
    """Return how many captured requests each route has; as ``listed`` with ``is_decoding``."""
    query = select(CaptureRow.route, func.count().label("held")).where(CaptureRow.engine == engine)
    if is_decoding:
        query = query.where(CaptureRow.completion_tokens != 1)
    rows = session.execute(query.group_by(CaptureRow.route).order_by(CaptureRow.route))
    return {row.route: row.held for row in rows}


def delete_before(session: Session, before_s: float) -> int:
    """Delete requests that arrived before a moment, and return how many went."""
    return changed_rows(session, delete(CaptureRow).where(CaptureRow.at_s < before_s))


def delete_routes(session: Session, routes: Sequence[str]) -> int:
    """Delete every request of some routes, and return how many went."""
    return changed_rows(session, delete(CaptureRow).where(CaptureRow.route.in_(list(routes))))


def delete_beyond(session: Session, engine: str, per_route: int) -> int:
    """Keep the newest requests of each route, and return how many older ones went."""
    rank = (
        func.row_number()
        .over(
            partition_by=CaptureRow.route, order_by=(CaptureRow.at_s.desc(), CaptureRow.id.desc())
        )
        .label("rank")
    )
    ranked = select(CaptureRow.id, rank).where(CaptureRow.engine == engine).subquery()
    surplus = select(ranked.c.id).where(ranked.c.rank > per_route)
    return changed_rows(session, delete(CaptureRow).where(CaptureRow.id.in_(surplus)))


def _row(cursor: Cursor, request: CapturedRequest, redactions: int) -> dict[str, object]:
    plain = request.to_dict()
    at_s = plain.pop("at")
    del plain["output_ids"]
    return {
        **plain,
        "at_s": at_s,
        "cursor": cursor.id,
        "engine": cursor.engine,
        "redactions": redactions,
    }


def _stored(row: CaptureRow) -> StoredCapture:
    request = CapturedRequest(
        seq=row.seq,
        at=row.at_s,
        request_id=row.request_id,
        route=row.route,
        prompt=row.prompt,
        prompt_ids=integers(items({"prompt_ids": row.prompt_ids}, "prompt_ids")),
        sampling=dict(as_object(row.sampling, f"sampling of capture {row.id}")),
        completion_tokens=row.completion_tokens,
    )
    return StoredCapture(id=row.id, engine=row.engine, redactions=row.redactions, request=request)
