"""What drift detection keeps, the alarms it raised, and what engines were made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, delete, select, update
from sqlalchemy.orm import Session

from collectors.records import Method
from collectors.records.parsing import as_object, as_time, member, number, text
from policy.drift import TRAFFIC, DriftState
from policy.drift_alarms import Alarm, AlarmKind, Boot, continued
from policy.drift_history import History
from tuner.errors import NotFound
from tuner.store import audit
from tuner.store.audit import AuditEntry
from tuner.store.facts import Journal
from tuner.store.schema import CursorRow, DriftAlarmRow, DriftHistoryRow, EngineIdentityRow
from tuner.store.statements import changed_rows, insert_rows, lock_by_name

ACKNOWLEDGED_LIFETIME_S = 7 * 86_400.0
"""An alarm that somebody looked at stays on record as long as it comes back within this."""

_OPPOSITE = {AlarmKind.DECAY: AlarmKind.RISE, AlarmKind.RISE: AlarmKind.DECAY}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAlarm:
    """An alarm and what became of it.

    Attributes:
        id: number.
        engine: engine name.
        alarm: what was seen.
        raised_at: when it was first stored.
        ended_at: when it was over; None while it lasts.
        acknowledged_at: when somebody acknowledged it; None where nobody did.
        acknowledged_by: token name or job; None likewise.
        acknowledged_why: one line; None likewise.
    """

    id: int
    engine: str
    alarm: Alarm
    raised_at: datetime
    ended_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    acknowledged_why: str | None

    @property
    def is_open(self) -> bool:
        """True while it lasts and nobody acknowledged it."""
        return self.ended_at is None and self.acknowledged_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What an engine was made of.

    Attributes:
        at_s: since when, Unix seconds.
        boot_id: the start at which it was read.
        parts: hash or version by part.
    """

    at_s: float
    boot_id: str
    parts: Mapping[str, str]


def state_of(session: Session, engine: str) -> tuple[DriftState, float | None]:
    """Return what was seen so far and the end of the newest window in it, Unix seconds."""
    rows = session.scalars(select(DriftHistoryRow).where(DriftHistoryRow.engine == engine)).all()
    histories = {
        row.scope: History.from_dict(as_object(row.body, f"drift history {row.scope!r}"))
        for row in rows
    }
    ends = [row.through_s for row in rows if row.scope == TRAFFIC]
    return DriftState(histories=histories), ends[0] if ends else None


def save_state(session: Session, engine: str, state: DriftState, through_s: float) -> None:
    """Replace what was seen so far."""
    session.execute(delete(DriftHistoryRow).where(DriftHistoryRow.engine == engine))
    histories = {TRAFFIC: History(positions=1), **state.histories}
    rows = [
        {"engine": engine, "scope": scope, "through_s": through_s, "body": history.to_dict()}
        for scope, history in sorted(histories.items())
    ]
    insert_rows(session, DriftHistoryRow, rows)


def note_alarms(session: Session, engine: str, alarms: Sequence[Alarm], at: datetime) -> int:
    """Store alarms, and return how many are new; one that lasts is refreshed.

    A rise ends the decay of its route, and the other way round. A change of version is another one
    each time: what was learned between two of them is of an engine that is gone. So is a change
    that follows one which somebody acknowledged: they looked at the one before.
    """
    lock_by_name(session, f"drift {engine}")
    new = 0
    for alarm in alarms:
        if alarm.kind in _OPPOSITE:
            _end(session, _open(engine, _OPPOSITE[alarm.kind], alarm.route or ""), at)
        same = _open(engine, alarm.kind, alarm.route or "").where(
            DriftAlarmRow.method == (alarm.method or "")
        )
        if alarm.kind is AlarmKind.VERSION_CHANGE:
            _end(session, same, at)
        if alarm.kind.is_change:
            _end(session, same.where(DriftAlarmRow.acknowledged_at.is_not(None)), at)
        row = session.scalars(same).first()
        if row is None:
            session.add(DriftAlarmRow(engine=engine, raised_at=at, **_values(alarm)))
            new += 1
        else:
            for name, value in _values(continued(_stored(row).alarm, alarm)).items():
                setattr(row, name, value)
        session.flush()
    return new


def end_quiet(session: Session, engine: str, now_s: float) -> int:
    """End alarms that were not seen again for their lifetime; return how many."""
    ended = 0
    for kind in AlarmKind:
        for is_acknowledged in (False, True):
            seen = DriftAlarmRow.acknowledged_at
            lifetime_s = ACKNOWLEDGED_LIFETIME_S if is_acknowledged else kind.lifetime_s
            ended += changed_rows(
                session,
                update(DriftAlarmRow)
                .where(
                    DriftAlarmRow.engine == engine,
                    DriftAlarmRow.kind == kind,
                    DriftAlarmRow.ended_at.is_(None),
                    seen.is_not(None) if is_acknowledged else seen.is_(None),
                    DriftAlarmRow.seen_s < now_s - lifetime_s,
                )
                .values(ended_at=as_time(now_s)),
            )
    return ended


def end_kind(
    session: Session, engine: str, kind: AlarmKind, *, keep: Collection[str | None], at: datetime
) -> int:
    """End the alarms of one kind except those of some routes; return how many."""
    return changed_rows(
        session,
        update(DriftAlarmRow)
        .where(
            DriftAlarmRow.engine == engine,
            DriftAlarmRow.kind == kind,
            DriftAlarmRow.ended_at.is_(None),
            DriftAlarmRow.route.not_in([route or "" for route in keep]),
        )
        .values(ended_at=at),
    )


def acknowledge(session: Session, number: int, *, who: str, why: str, at: datetime) -> StoredAlarm:
    """Note that somebody looked at an alarm, in the audit too: it stops no decisions any more.

    Raises:
        NotFound: there is none with this number.
        BadRequest: the reason is empty or too long.
    """
    why = audit.reason_line(why)
    is_first = changed_rows(
        session,
        update(DriftAlarmRow)
        .where(DriftAlarmRow.id == number, DriftAlarmRow.acknowledged_at.is_(None))
        .values(acknowledged_at=at, acknowledged_by=who, acknowledged_why=why),
    )
    row = session.get(DriftAlarmRow, number, populate_existing=True)
    if row is None:
        raise NotFound(f"there is no drift alarm {number}; see `spectuner drift`")
    if is_first:
        target = f"drift alarm {number}"
        entry = AuditEntry(
            at=at, who=who, action="drift.acknowledge", target=target, outcome="done", detail=why
        )
        audit.add(session, entry)
    return _stored(row)


def alarms(
    session: Session,
    engine: str,
    *,
    open_only: bool = False,
    since_s: float = 0.0,
) -> tuple[StoredAlarm, ...]:
    """Return alarms seen after a moment, newest first.

    Args:
        session: store session.
        engine: engine name.
        open_only: only those that last and that nobody acknowledged.
        since_s: Unix seconds.
    """
    query = select(DriftAlarmRow).where(
        DriftAlarmRow.engine == engine, DriftAlarmRow.seen_s >= since_s
    )
    if open_only:
        query = query.where(
            DriftAlarmRow.ended_at.is_(None), DriftAlarmRow.acknowledged_at.is_(None)
        )
    rows = session.scalars(query.order_by(DriftAlarmRow.id.desc()))
    return tuple(_stored(row) for row in rows)


def latest_identity(session: Session, engine: str) -> Identity | None:
    """Return what an engine was made of when it was last read; None before that."""
    row = session.scalars(
        select(EngineIdentityRow)
        .where(EngineIdentityRow.engine == engine)
        .order_by(EngineIdentityRow.id.desc())
        .limit(1)
    ).first()
    if row is None:
        return None
    parts = as_object(row.parts, f"identity of {engine}")
    return Identity(
        at_s=row.at_s, boot_id=row.boot_id, parts={name: text(parts, name) for name in parts}
    )


def add_identity(session: Session, engine: str, identity: Identity) -> None:
    """Store what an engine is made of from now on."""
    row = EngineIdentityRow(
        engine=engine, at_s=identity.at_s, boot_id=identity.boot_id, parts=dict(identity.parts)
    )
    session.add(row)
    session.flush()


def boots(session: Session, engine: str, since_s: float) -> tuple[Boot, ...]:
    """Return the starts of an engine that were seen after a moment and the one before, in order."""
    rows = session.scalars(
        select(CursorRow)
        .where(CursorRow.engine == engine, CursorRow.journal == Journal.STEPS)
        .order_by(CursorRow.id)
    )
    found = [Boot(boot_id=row.boot_id, started_s=row.created_at.timestamp()) for row in rows]
    earlier = [boot for boot in found if boot.started_s < since_s]
    return (*earlier[-1:], *(boot for boot in found if boot.started_s >= since_s))


def delete_before(session: Session, at: datetime) -> int:
    """Delete alarms that ended before a moment; return how many."""
    return changed_rows(session, delete(DriftAlarmRow).where(DriftAlarmRow.ended_at < at))


def _open(engine: str, kind: AlarmKind, route: str) -> Select[DriftAlarmRow]:
    return select(DriftAlarmRow).where(
        DriftAlarmRow.engine == engine,
        DriftAlarmRow.kind == kind,
        DriftAlarmRow.route == route,
        DriftAlarmRow.ended_at.is_(None),
    )


def _end(session: Session, query: Select[DriftAlarmRow], at: datetime) -> None:
    for row in session.scalars(query):
        row.ended_at = at
    session.flush()


def _values(alarm: Alarm) -> dict[str, object]:
    return {
        "kind": alarm.kind,
        "route": alarm.route or "",
        "method": alarm.method or "",
        "since_s": alarm.since_s,
        "seen_s": alarm.seen_s,
        "saw": alarm.saw,
        "advice": alarm.advice,
        "figures": dict(alarm.figures),
    }


def _stored(row: DriftAlarmRow) -> StoredAlarm:
    figures = as_object(row.figures, f"figures of alarm {row.id}")
    return StoredAlarm(
        id=row.id,
        engine=row.engine,
        alarm=Alarm(
            kind=member(AlarmKind, row.kind, "alarm"),
            route=row.route or None,
            method=member(Method, row.method, "method") if row.method else None,
            since_s=row.since_s,
            seen_s=row.seen_s,
            saw=row.saw,
            advice=row.advice,
            figures={name: number(figures, name) for name in figures},
        ),
        raised_at=row.raised_at,
        ended_at=row.ended_at,
        acknowledged_at=row.acknowledged_at,
        acknowledged_by=row.acknowledged_by,
        acknowledged_why=row.acknowledged_why,
    )
