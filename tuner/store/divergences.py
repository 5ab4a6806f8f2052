"""Divergence reports: greedy outputs of plain decoding against a Setting, with a control arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from sqlalchemy import select
from sqlalchemy.orm import Session

from collectors.records.parsing import JsonObject, as_object, integer, number, text
from tuner.errors import NotFound
from tuner.store.schema import DivergencePairRow, DivergenceRow
from tuner.store.statements import insert_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCounts:
    """How the outputs of one arm compare with plain decoding, by kind of first difference.

    Attributes:
        identical: no difference.
        near_tie: the two best tokens were closer at the split than the noise of the dtype.
        suspicious: they were not.
        length: one output ended earlier.
        error: a request failed.
    """

    identical: int = 0
    near_tie: int = 0
    suspicious: int = 0
    length: int = 0
    error: int = 0

    @property
    def pairs(self) -> int:
        """Prompts compared."""
        return sum(getattr(self, name) for name in self.__slots__)

    def to_dict(self) -> dict[str, int]:
        """Return the stored form."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the stored form."""
        return cls(**{name: integer(data, name, 0) for name in cls.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceSummary:
    """What a report says.

    Attributes:
        tested: counts of the Setting's arm.
        control: counts of plain decoding at another batch shape, the measured noise.
        diverges: True where the Setting differs more than the control; None where that could not
            be judged.
        verdict: the same in one sentence.
        noise_margin: top-2 margin below which a split is a near tie.
        false_alarm_rate: chance that a Setting without fault is called divergent.
        p_value: of the comparison with the control arm; None where there was none.
    """

    tested: ArmCounts
    control: ArmCounts
    diverges: bool | None
    verdict: str
    noise_margin: float
    false_alarm_rate: float
    p_value: float | None

    @property
    def is_passing(self) -> bool:
        """Whether the Setting may be put into force: judged, and found no different."""
        return self.diverges is False

    def to_dict(self) -> dict[str, object]:
        """Return the stored form."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "tested": self.tested.to_dict(), "control": self.control.to_dict()}

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the stored form."""
        diverges = data.get("diverges")
        return cls(
            tested=ArmCounts.from_dict(as_object(data.get("tested"), "tested")),
            control=ArmCounts.from_dict(as_object(data.get("control"), "control")),
            diverges=diverges if isinstance(diverges, bool) else None,
            verdict=text(data, "verdict"),
            noise_margin=number(data, "noise_margin"),
            false_alarm_rate=number(data, "false_alarm_rate"),
            p_value=None if data.get("p_value") is None else number(data, "p_value"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergencePair:
    """One prompt on one arm.

    Attributes:
        arm: ``tested`` or ``control``.
        place: order within the arm, from 0.
        request_id: id of the captured request.
        route: its route.
        kind: identical, near_tie, suspicious, length or error.
        split_at: place of the first different token, from 0; None where there is none.
        margin: top-2 margin there; None where it was not read.
        detail: one line, such as the error.
    """

    arm: str
    place: int
    request_id: str
    route: str
    kind: str
    split_at: int | None = None
    margin: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDivergence:
    """A report without its pairs.

    Attributes:
        id: number.
        engine: engine it ran on.
        plain: digest of the configuration with speculation off.
        tested: digest of the configuration with the Setting.
        at: when it was made.
        summary: what it says.
    """

    id: int
    engine: str
    plain: str
    tested: str
    at: datetime
    summary: DivergenceSummary


def add(
    session: Session,
    *,
    engine: str,
    plain: str,
    tested: str,
    summary: DivergenceSummary,
    pairs: Sequence[DivergencePair],
    at: datetime,
) -> int:
    """Store a report on two configurations that are in ``pinned`` already; return its number."""
    row = DivergenceRow(
        engine=engine,
        plain=plain,
        tested=tested,
        created_at=at,
        pairs=summary.tested.pairs,
        identical=summary.tested.identical,
        near_tie=summary.tested.near_tie,
        suspicious=summary.tested.suspicious,
        control_pairs=summary.control.pairs,
        control_identical=summary.control.identical,
        is_passing=summary.is_passing,
        report=summary.to_dict(),
    )
    session.add(row)
    session.flush()
    plain_pairs = [{name: getattr(pair, name) for name in pair.__slots__} for pair in pairs]
    insert_rows(session, DivergencePairRow, [{"divergence": row.id, **one} for one in plain_pairs])
    return row.id


def one(session: Session, number: int) -> StoredDivergence:
    """Return one report.

    Raises:
        NotFound: there is none with this number.
    """
    row = session.get(DivergenceRow, number, populate_existing=True)
    if row is None:
        raise NotFound(f"there is no divergence report {number}; `spectuner divergence` makes one")
    return _stored(row)


def listed(
    session: Session, *, tested: str | None = None, limit: int = 200
) -> tuple[StoredDivergence, ...]:
    """Return reports, newest first; with a digest, those on that configuration."""
    query = select(DivergenceRow).order_by(DivergenceRow.id.desc()).limit(limit)
    if tested is not None:
        query = query.where(DivergenceRow.tested == tested)
    return tuple(_stored(row) for row in session.scalars(query))


def pairs(session: Session, number: int) -> tuple[DivergencePair, ...]:
    """Return the pairs of a report: the tested arm first, each in order."""
    rows = session.scalars(
        select(DivergencePairRow)
        .where(DivergencePairRow.divergence == number)
        .order_by(DivergencePairRow.arm.desc(), DivergencePairRow.place)
    )
    return tuple(
        DivergencePair(**{name: getattr(row, name) for name in DivergencePair.__slots__})
        for row in rows
    )


def _stored(row: DivergenceRow) -> StoredDivergence:
    return StoredDivergence(
        id=row.id,
        engine=row.engine,
        plain=row.plain,
        tested=row.tested,
        at=row.created_at,
        summary=DivergenceSummary.from_dict(as_object(row.report, f"report {row.id}")),
    )
