"""Gauges of engines and devices, as read now and then."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from collectors.records import EngineSample, GpuSample
from tuner.store.schema import DeviceSampleRow, EngineSampleRow
from tuner.store.statements import changed_rows, insert_rows


def add_engine(session: Session, sample: EngineSample) -> None:
    """Store what an engine said of itself."""
    insert_rows(session, EngineSampleRow, [_row(sample)])


def add_device(session: Session, sample: GpuSample) -> None:
    """Store what a device was doing."""
    insert_rows(session, DeviceSampleRow, [_row(sample)])


def latest_engine(session: Session, engine: str) -> EngineSample | None:
    """Return the newest sample of an engine; None before the first."""
    row = session.scalars(
        select(EngineSampleRow)
        .where(EngineSampleRow.engine == engine)
        .order_by(EngineSampleRow.at_s.desc())
        .limit(1)
    ).first()
    if row is None:
        return None
    names = [name for name in EngineSample.__slots__ if name != "at"]
    return EngineSample(at=row.at_s, **{name: getattr(row, name) for name in names})


def latest_devices(session: Session, since_s: float) -> tuple[GpuSample, ...]:
    """Return the newest sample of each device seen since a moment."""
    rows = session.scalars(
        select(DeviceSampleRow)
        .where(DeviceSampleRow.at_s >= since_s)
        .order_by(DeviceSampleRow.at_s)
    )
    newest = {row.device: row for row in rows}
    names = [name for name in GpuSample.__slots__ if name != "at"]
    return tuple(
        GpuSample(at=row.at_s, **{name: getattr(row, name) for name in names})
        for _, row in sorted(newest.items())
    )


def delete_before(session: Session, before_s: float) -> int:
    """Delete samples older than a moment, and return how many went."""
    tables = (EngineSampleRow, DeviceSampleRow)
    return sum(
        changed_rows(session, delete(table).where(table.at_s < before_s)) for table in tables
    )


def _row(sample: EngineSample | GpuSample) -> dict[str, object]:
    plain = {name: getattr(sample, name) for name in sample.__slots__}
    plain["at_s"] = plain.pop("at")
    return plain
