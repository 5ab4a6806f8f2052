"""When a job is due. Pure arithmetic on given times, so that clock changes can be tested.

A due time has a key; one key runs once, however many services there are. Only the newest due time
counts: whoever was down for a week catches up with one run, not with seven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A due time.

    Attributes:
        key: names it; equal in every service.
        at: the moment, UTC.
    """

    key: str
    at: datetime


class Schedule(Protocol):
    """When something is due."""

    @property
    def tick_s(self) -> float:
        """Seconds between two looks at the clock."""

    def delay_s(self, now: datetime) -> float:
        """Return after how many seconds to look first."""

    def latest_due(self, now: datetime) -> Due:
        """Return the newest due time that is not in the future."""

    def __str__(self) -> str:
        """Say it in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """At fixed distances, counted from the epoch.

    Attributes:
        seconds: the distance.
        is_punctual: whether to look at the due times themselves, not at once and so on from there.
    """

    seconds: float
    is_punctual: bool = False

    @property
    def tick_s(self) -> float:
        """Seconds between two looks at the clock."""
        return self.seconds

    def delay_s(self, now: datetime) -> float:
        """Return after how many seconds to look first."""
        return self.seconds - now.timestamp() % self.seconds if self.is_punctual else 0.0

    def latest_due(self, now: datetime) -> Due:
        """Return the newest due time that is not in the future."""
        slot = math.floor(now.timestamp() / self.seconds)
        at = datetime.fromtimestamp(slot * self.seconds, UTC)
        return Due(key=f"every {self.seconds:g} s #{slot}", at=at)

    def __str__(self) -> str:
        """Say it in words."""
        return f"every {self.seconds:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """Once per local date.

    On the day on which the time is skipped it is due when the skipped hour is over; on the day on
    which it comes twice, at the first.

    Attributes:
        at: wall-clock time.
        zone: time zone.
    """

    at: time
    zone: ZoneInfo

    @property
    def tick_s(self) -> float:
        """Seconds between two looks at the clock."""
        return 30.0

    def delay_s(self, now: datetime) -> float:
        """Return after how many seconds to look first: at once."""
        return 0.0

    def latest_due(self, now: datetime) -> Due:
        """Return the newest due time that is not in the future."""
        today = now.astimezone(self.zone).date()
        moment = self._on(today)
        if moment > now:
            today -= timedelta(days=1)
            moment = self._on(today)
        return Due(key=f"daily {today.isoformat()}", at=moment)

    def _on(self, day: date) -> datetime:
        return datetime.combine(day, self.at, self.zone).astimezone(UTC)

    def __str__(self) -> str:
        """Say it in words."""
        return f"daily at {self.at:%H:%M} {self.zone.key}"
