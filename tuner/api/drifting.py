"""Drift alarms as views."""

from __future__ import annotations

from collectors.records.parsing import as_time
from dashboards.views import AlarmLine
from tuner.store.drift import StoredAlarm


def alarm_line(stored: StoredAlarm) -> AlarmLine:
    """Return the view of one alarm."""
    alarm = stored.alarm
    return AlarmLine(
        id=stored.id,
        engine=stored.engine,
        kind=alarm.kind.value,
        route=alarm.route,
        method=alarm.method,
        since=as_time(alarm.since_s),
        seen=as_time(alarm.seen_s),
        saw=alarm.saw,
        advice=alarm.advice,
        figures=alarm.figures,
        is_open=stored.is_open,
        stops_decisions=stored.is_open and alarm.kind.stops_decisions,
        ended=stored.ended_at,
        acknowledged=stored.acknowledged_at,
        acknowledged_by=stored.acknowledged_by,
        acknowledged_why=stored.acknowledged_why,
    )
