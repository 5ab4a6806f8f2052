"""Facts and the cursor that goes with them: both move in one transaction, or neither does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.orm import Session

from collectors.records import DecodeStep, JournalPage, RequestTrace, Setting
from collectors.records.parsing import canonical_json
from tuner.errors import CursorMoved
from tuner.store import arms
from tuner.store.schema import (
    CounterfactualRow,
    CursorRow,
    RequestTraceRow,
    StepDraftRow,
    StepGroupRow,
    StepRow,
)
from tuner.store.statements import changed_rows, insert_if_missing, insert_rows


class Journal(StrEnum):
    """Which numbered journal of an engine a cursor belongs to."""

    STEPS = "steps"
    CAPTURES = "captures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far one boot of a journal was read.

    Attributes:
        id: row number, to which facts refer.
        engine: engine name as configured.
        boot_id: start of the engine.
        last_seq: newest sequence number stored; 0 before the first.
        lost: records overwritten before they were read.
        created_at: when this boot was first seen.
        pulled_s: end of the last pull, Unix seconds; None before the first.
        caught_up_s: start of the last pull that reached the end of the journal, Unix seconds:
            everything that happened before it is stored. None before the first.
    """

    id: int
    engine: str
    boot_id: str
    last_seq: int
    lost: int
    created_at: datetime
    pulled_s: float | None
    caught_up_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalTotals:
    """What became of an engine's journal, over all its boots.

    Attributes:
        boots: starts of the engine seen.
        journalled: sequence numbers known to have been written.
        stored: records that reached the store, steps and requests, counted row by row; those
            deleted by age since then are among them.
        lost: records overwritten before they were read.
    """

    boots: int
    journalled: int
    stored: int
    lost: int


def latest_cursor(session: Session, engine: str, journal: Journal = Journal.STEPS) -> Cursor | None:
    """Return the cursor of the newest boot; None before the first pull."""
    row = session.scalars(
        select(CursorRow)
        .where(CursorRow.engine == engine, CursorRow.journal == journal)
        .order_by(CursorRow.id.desc())
        .limit(1)
    ).first()
    return None if row is None else _cursor(row)


def find_cursor(
    session: Session, engine: str, boot_id: str, journal: Journal = Journal.STEPS
) -> Cursor | None:
    """Return the cursor of a boot; None where that boot was never read."""
    row = session.scalars(_of_boot(engine, boot_id, journal)).first()
    return None if row is None else _cursor(row)


def open_cursor(
    session: Session,
    engine: str,
    boot_id: str,
    at: datetime,
    journal: Journal = Journal.STEPS,
) -> Cursor:
    """Return the cursor of a boot, made at 0 where the boot is new."""
    fresh = {"engine": engine, "journal": journal, "boot_id": boot_id, "created_at": at}
    insert_if_missing(session, CursorRow, {**fresh, "last_seq": 0, "lost": 0, "deleted": 0})
    return _cursor(session.scalars(_of_boot(engine, boot_id, journal)).one())


def move_cursor(session: Session, cursor: Cursor, last_seq: int, lost: int) -> None:
    """Move a cursor on, only if nobody has since it was read.

    Raises:
        CursorMoved: somebody has; the transaction must be dropped.
    """
    moved = changed_rows(
        session,
        update(CursorRow)
        .where(CursorRow.id == cursor.id, CursorRow.last_seq == cursor.last_seq)
        .values(last_seq=last_seq, lost=CursorRow.lost + lost),
    )
    if moved != 1:
        raise CursorMoved(
            f"journal of {cursor.engine} boot {cursor.boot_id} moved past {cursor.last_seq} "
            "meanwhile; another service stored these records"
        )


def note_pull(session: Session, cursor: Cursor, pulled_s: float, caught_up_s: float | None) -> None:
    """Note when a pull ended and, if it reached the journal's end, when it began."""
    values = {"pulled_s": pulled_s}
    if caught_up_s is not None:
        values["caught_up_s"] = caught_up_s
    session.execute(update(CursorRow).where(CursorRow.id == cursor.id).values(values))


def add_page(session: Session, cursor: Cursor, page: JournalPage) -> Cursor:
    """Store what a page holds beyond the cursor, and move the cursor, lost records counted.

    Raises:
        CursorMoved: another reader was first; the transaction must be dropped.
    """
    records = [record for record in page.records if record.seq > cursor.last_seq]
    last_seq = records[-1].seq if records else max(cursor.last_seq, page.first_seq - 1)
    lost = last_seq - cursor.last_seq - len(records)
    if last_seq == cursor.last_seq:
        return cursor
    move_cursor(session, cursor, last_seq, lost)
    _add_records(session, cursor, records)
    return _moved(cursor, last_seq, lost)


def totals(session: Session, engine: str) -> JournalTotals:
    """Return what became of an engine's step journal, over all boots."""
    boots, journalled, lost, deleted = session.execute(
        select(
            func.count(),
            func.sum(CursorRow.last_seq),
            func.sum(CursorRow.lost),
            func.sum(CursorRow.deleted),
        ).where(CursorRow.engine == engine, CursorRow.journal == Journal.STEPS)
    ).one()
    held = [
        session.scalars(select(func.count()).where(table.engine == engine)).one()
        for table in (StepRow, RequestTraceRow)
    ]
    return JournalTotals(
        boots=boots,
        journalled=int(journalled or 0),
        stored=sum(held) + int(deleted or 0),
        lost=int(lost or 0),
    )


def engines(session: Session) -> tuple[str, ...]:
    """Return the names of all engines ever read."""
    return tuple(session.scalars(select(CursorRow.engine).distinct().order_by(CursorRow.engine)))


def first_at_s(session: Session, engine: str, since_s: float = 0.0) -> float | None:
    """Return the time of the first fact since a moment, Unix seconds; None without any."""
    found = [
        session.scalars(
            select(func.min(table.at_s)).where(table.engine == engine, table.at_s >= since_s)
        ).one()
        for table in (StepRow, RequestTraceRow, CounterfactualRow)
    ]
    return min((at_s for at_s in found if at_s is not None), default=None)


def last_at_s(session: Session, engine: str) -> float | None:
    """Return the time of the newest step, Unix seconds; None without any."""
    return session.scalars(select(func.max(StepRow.at_s)).where(StepRow.engine == engine)).one()


def delete_before(session: Session, engine: str, before_s: float) -> int:
    """Delete facts older than a moment, and return how many records went."""
    gone = 0
    for table in (StepRow, RequestTraceRow):
        is_old = (table.engine == engine) & (table.at_s < before_s)
        counted = session.execute(
            select(table.cursor, func.count()).where(is_old).group_by(table.cursor)
        ).all()
        for cursor, count in counted:
            note = update(CursorRow).where(CursorRow.id == cursor)
            changed_rows(session, note.values(deleted=CursorRow.deleted + count))
            gone += count
    for rows in (StepGroupRow, StepDraftRow, StepRow, RequestTraceRow):
        changed_rows(session, delete(rows).where(rows.engine == engine, rows.at_s < before_s))
    return gone


def context_bucket(context_tokens: int) -> int:
    """Return the power of two at or below a context length; 0 for none."""
    return 1 << (context_tokens.bit_length() - 1) if context_tokens > 0 else 0


def _of_boot(engine: str, boot_id: str, journal: Journal) -> Select[CursorRow]:
    return (
        select(CursorRow)
        .where(
            CursorRow.engine == engine,
            CursorRow.journal == journal,
            CursorRow.boot_id == boot_id,
        )
        .execution_options(populate_existing=True)
    )


def _cursor(row: CursorRow) -> Cursor:
    return Cursor(
        id=row.id,
        engine=row.engine,
        boot_id=row.boot_id,
        last_seq=row.last_seq,
        lost=row.lost,
        created_at=row.created_at,
        pulled_s=row.pulled_s,
        caught_up_s=row.caught_up_s,
    )


def _moved(cursor: Cursor, last_seq: int, lost: int) -> Cursor:
    plain = {name: getattr(cursor, name) for name in cursor.__slots__}
    return Cursor(**{**plain, "last_seq": last_seq, "lost": cursor.lost + lost})


def _add_records(
    session: Session, cursor: Cursor, records: Sequence[DecodeStep | RequestTrace]
) -> None:
    steps = [record for record in records if isinstance(record, DecodeStep)]
    traces = [record for record in records if isinstance(record, RequestTrace)]
    keys = arms.remember(session, _settings_in(steps, traces))
    insert_rows(session, StepRow, [_step_row(cursor, step) for step in steps])
    insert_rows(
        session, StepGroupRow, [row for step in steps for row in _group_rows(cursor, step, keys)]
    )
    insert_rows(session, StepDraftRow, [row for step in steps for row in _draft_rows(cursor, step)])
    insert_rows(session, RequestTraceRow, [_trace_row(cursor, trace, keys) for trace in traces])


def _settings_in(steps: Sequence[DecodeStep], traces: Sequence[RequestTrace]) -> set[Setting]:
    return {group.setting for step in steps for group in step.groups} | {
        trace.setting for trace in traces
    }


def _place_of(cursor: Cursor, record: DecodeStep | RequestTrace) -> dict[str, object]:
    return {
        "cursor": cursor.id,
        "seq": record.seq,
        "engine": cursor.engine,
        "at_s": record.at,
    }


def _step_row(cursor: Cursor, step: DecodeStep) -> dict[str, object]:
    return {
        **_place_of(cursor, step),
        "plan_digest": step.plan_digest,
        "load": step.load.label,
        "running": step.running,
        "waiting": step.waiting,
        "rows": sum(group.rows for group in step.groups),
        "shadow_rows": sum(group.rows for group in step.groups if group.is_shadow),
        "positions": step.positions,
        "prefill_tokens": step.prefill_tokens,
        "context_tokens": step.context_tokens,
        "context_bucket": context_bucket(step.context_tokens),
        "draft_s": step.draft_s,
        "verify_s": step.verify_s,
        "sample_s": step.sample_s,
        "other_s": step.other_s,
        "is_reference": step.is_reference,
    }


def _group_rows(
    cursor: Cursor, step: DecodeStep, keys: dict[Setting, str]
) -> list[dict[str, object]]:
    return [
        {
            **_place_of(cursor, step),
            "place": place,
            "load": step.load.label,
            "route": group.route,
            "setting": keys[group.setting],
            "is_shadow": group.is_shadow,
            "is_greedy": group.is_greedy,
            "rows": group.rows,
            "tokens": group.tokens,
            "outcomes": canonical_json(
                [[o.drafted, o.accepted, o.rows] for o in sorted(group.outcomes)]
            ),
        }
        for place, group in enumerate(step.groups)
    ]


def _draft_rows(cursor: Cursor, step: DecodeStep) -> list[dict[str, object]]:
    return [
        {**_place_of(cursor, step), "place": place, **cost.to_dict()}
        for place, cost in enumerate(step.drafts)
    ]


def _trace_row(cursor: Cursor, trace: RequestTrace, keys: dict[Setting, str]) -> dict[str, object]:
    plain = trace.to_dict()
    del plain["kind"], plain["at"]
    return {**plain, **_place_of(cursor, trace), "setting": keys[trace.setting]}
