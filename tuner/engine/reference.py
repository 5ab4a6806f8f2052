"""When a step runs without drafts for comparison: a plain step beside drafting ones, at one pace.

The machine's pace wanders with its neighbours and its heat, so a drafting step timed now and a
plain step timed a minute ago cannot be compared; a plain step among drafting ones can.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tuner.engine.row import Row


class ReferenceTurns:
    """Counts steps that draft and says which of them runs plain instead.

    The spacing is drawn anew each time, so that it does not beat with anything periodic.
    """

    def __init__(self, interval: int, generator: random.Random) -> None:
        """Start counting.

        Args:
            interval: drafting steps from one reference step to the next, on average; 0 for none.
            generator: draws the spacing, uniform from half the interval to one and a half.
        """
        self._interval = interval
        self._generator = generator
        self._left = self._drawn()

    def take(self, decoding: Sequence[Row], *, has_prefill: bool) -> bool:
        """Count a step; say whether it runs plain.

        One that is due waits for a step without prompts, replayed rows and rows whose request
        brought a Setting of its own.

        Args:
            decoding: the rows that decode, each with the Setting of the plan or of its request.
            has_prefill: rows beside them read their prompt.
        """
        if not self._interval or not any(row.setting.k for row in decoding):
            return False
        self._left -= 1
        if self._left > 0 or has_prefill or any(map(_is_bound, decoding)):
            return False
        self._left = self._drawn()
        return True

    def _drawn(self) -> int:
        half = self._interval // 2
        return self._generator.randint(self._interval - half, self._interval + half)


def _is_bound(row: Row) -> bool:
    """Say whether a row must keep its Setting."""
    return row.request.is_shadow or row.request.setting is not None
