"""What the drift page and the overview show of alarms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from collectors.records import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmLine:
    """One drift alarm.

    Attributes:
        id: number.
        engine: engine name.
        kind: decay, rise, version_change, mix_change, counter_fault or loop.
        route: route name; None where it is about the whole engine.
        method: drafting method; None where it is about all.
        since: when it began, as far as can be told.
        seen: when it was last seen.
        saw: what was seen, one sentence.
        advice: what to do.
        figures: the numbers behind it, by name.
        is_open: True while it lasts and nobody acknowledged it.
        stops_decisions: True where nothing is recommended because of it.
        ended: when it was over; None while it lasts.
        acknowledged: when somebody acknowledged it; None where nobody did.
        acknowledged_by: who; None likewise.
        acknowledged_why: why; None likewise.
    """

    id: int
    engine: str
    kind: str
    route: str | None
    method: Method | None
    since: datetime
    seen: datetime
    saw: str
    advice: str
    figures: Mapping[str, float]
    is_open: bool
    stops_decisions: bool
    ended: datetime | None
    acknowledged: datetime | None
    acknowledged_by: str | None
    acknowledged_why: str | None
