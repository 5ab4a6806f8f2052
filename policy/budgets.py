"""What a controller may spend: tokens to explore with, risks to take, edits of the plan."""

from __future__ import annotations

import math

from collectors.records import LoadLevel
from policy.knowledge import MOST_ROWS
from policy.options import ControlOptions
from policy.types import Window

LEAST_WORTH, MOST_WORTH = 0.05, 2.0
"""What a row that explores for a window may bring, in windows of a row's tokens."""


class TokenBudget:
    """Exploration in rows by window, against those served.

    The first stretch is granted at once: most of what there is to learn is learned at the start.
    """

    def __init__(self, options: ControlOptions) -> None:
        """Start with nothing served."""
        self._options = options
        self._windows = 0
        self._rows = 0.0
        self._spent = 0.0
        self._risks = 0
        self._at_stake: float | None = None

    def earn(self, window: Window) -> None:
        """Count a window that was served, and take a risk back that did no harm."""
        if self._at_stake is not None and _goodput(window) >= self._at_stake:
            self._risks -= 1
        self._at_stake = None
        rows = sum(sum(mix.rows_by_route.values()) for mix in window.mixes)
        if 0 < rows < MOST_ROWS:
            self._windows += 1
            self._rows += rows

    def affords(self, rows: float) -> bool:
        """True where so many rows may explore for a window."""
        return self._spent + rows <= self._granted_rows

    @property
    def price(self) -> float:
        """What exploring must bring, in windows of its rows' tokens: more the less is left.

        Source: the threshold of online knapsacks whose values lie within bounds, which no other is
        better than at worst (Zhou, Chakrabarty and Lukose, WINE 2008).
        """
        used = min(1.0, self._spent / self._granted_rows) if self._granted_rows else 0.0
        least = LEAST_WORTH / math.e
        return float(least * (MOST_WORTH / least) ** used)

    @property
    def _granted_rows(self) -> float:
        mean = self._rows / max(1, self._windows)
        earned = max(self._rows, self._options.granted_windows * mean)
        return self._options.exploring_share * earned

    @property
    def may_risk(self) -> bool:
        """True while windows that may fall below off are within their share."""
        earned = max(self._windows, self._options.granted_windows)
        return self._risks + 1 <= self._options.risky_share * earned

    @property
    def is_at_risk(self) -> bool:
        """True while it is not known how a risky window turned out."""
        return self._at_stake is not None

    def spend(self, rows: float) -> None:
        """Book an exploration."""
        self._spent += rows

    def risk(self, least: float) -> None:
        """Book the window as one that may fall below off, until it turns out that it did not.

        Args:
            least: tokens per second that it has to give.
        """
        self._risks += not self.is_at_risk
        self._at_stake = max(least, self._at_stake or 0.0)


def _goodput(window: Window) -> float:
    """Return the tokens per second of a window's steps; 0 without any."""
    busy_s = sum(mix.busy_s for mix in window.mixes)
    return sum(mix.tokens for mix in window.mixes) / busy_s if busy_s > 0 else 0.0


class EditBudget:
    """How often each entry of the plan may change; a changed route gets its edits back."""

    def __init__(self, granted: float, seconds_per_edit: float) -> None:
        """Start with a full budget everywhere, from which each edit takes one.

        Args:
            granted: edits an entry may see at once.
            seconds_per_edit: time in which it earns another.
        """
        self._granted = granted
        self._seconds_per_edit = seconds_per_edit
        self._left: dict[tuple[str, LoadLevel], tuple[float, float]] = {}

    def has(self, route: str, load: LoadLevel, now_s: float) -> bool:
        """True where an entry may change."""
        return self._credit((route, load), now_s) >= 1

    def spend(self, route: str, load: LoadLevel, now_s: float) -> None:
        """Book a change of an entry."""
        key = (route, load)
        self._left[key] = (max(0.0, self._credit(key, now_s) - 1), now_s)

    def pardon(self, route: str) -> None:
        """Give a route its edits back, since what they were made for is over."""
        for key, (_, at_s) in self._left.items():
            if key[0] == route:
                self._left[key] = (self._granted, at_s)

    def _credit(self, key: tuple[str, LoadLevel], now_s: float) -> float:
        left, at_s = self._left.get(key, (self._granted, now_s))
        earned = (now_s - at_s) / self._seconds_per_edit
        return min(self._granted, left + earned)
