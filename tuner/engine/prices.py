"""What a step's parts cost here and now, learned from the steps before: passes, drafting, yield.

Seconds come from a shared machine, so every figure is a fit over many steps that forgets; a single
step far above the fit, in which something else ran, hardly counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from collectors.records import Method, load_level_of

_MEMORY = 64
"""Steps of a kind after which an older one counts a third."""
_OUTLIER = 2.0
"""Seconds count up to this many times what their kind took so far, at that count or on average."""
_EXACT_POSITIONS = 8
_BINS_PER_OCTAVE = 4
_BLOCKS = (1, 2, 4)
MIN_BLOCK = 4
"""Fewest positions over which a pass's slope is taken: products are computed in blocks, so that the
next position alone is free or dear by chance."""


@dataclass(slots=True)
class Line:
    """Least squares of seconds over a count, older ones fading."""

    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    @classmethod
    def through(cls, lines: Iterable[Line]) -> Line:
        """Return the line through the points of several."""
        joined = cls()
        for line in lines:
            joined.weight += line.weight
            joined.x += line.x
            joined.y += line.y
            joined.xx += line.xx
            joined.xy += line.xy
        return joined

    def add(self, x: float, y: float) -> None:
        """Take in a point."""
        most = _OUTLIER * max(self.y / self.weight, self.at(x)) if self.weight >= 4 else 0.0
        if most > 0:
            y = min(y, most)
        keep = 1 - 1 / _MEMORY
        self.weight = keep * self.weight + 1
        self.x = keep * self.x + x
        self.y = keep * self.y + y
        self.xx = keep * self.xx + x * x
        self.xy = keep * self.xy + x * y

    @property
    def slope(self) -> float:
        """Seconds of one more, at least 0; the mean's share of each until counts differ."""
        if not self.weight:
            return 0.0
        spread = self.xx - self.x * self.x / self.weight
        if spread < 0.05 * self.weight:
            return self.y / self.x
        return max(0.0, (self.xy - self.x * self.y / self.weight) / spread)

    def at(self, x: float) -> float:
        """Return the seconds at a count, at least 0."""
        if not self.weight:
            return 0.0
        return max(0.0, (self.y + self.slope * (x * self.weight - self.x)) / self.weight)


class PassTimes:
    """Seconds of a target pass and of what follows it, by the positions it computes."""

    def __init__(self) -> None:
        self._lines: dict[int, Line] = {}

    def add(self, positions: int, seconds: float) -> None:
        """Take in a pass."""
        self._lines.setdefault(_bin(positions), Line()).add(positions, seconds)

    def slope(self, positions: int, block: int) -> float:
        """Return the seconds of one more position, over the block or blocks where it is least.

        A step of the table does not hide what lies behind it: where the next few positions are dear
        and those after them free, as with products made for 16 rows, a draft goes across.

        Args:
            positions: those that are computed anyway.
            block: how many more are looked at, and up to four times as many.
        """
        return min(self._slope_to(positions, block * blocks) for blocks in _BLOCKS)

    def _slope_to(self, positions: int, more: int) -> float:
        first, last = _bin(positions), _bin(positions + more)
        near = [line for place, line in self._lines.items() if first <= place <= last]
        return Line.through(near if len(near) > 1 else self._lines.values()).slope


class DraftTimes:
    """Seconds of drafting by method, load level and draft passes one after the other."""

    def __init__(self) -> None:
        self._lines: dict[Method, dict[int, Line]] = {}

    def add(self, method: Method, rows: int, depth: int, seconds: float) -> None:
        """Take in what a method needed in a step."""
        lines = self._lines.setdefault(method, {})
        lines.setdefault(load_level_of(rows).low, Line()).add(depth, seconds)

    def first(self, method: Method, rows: int) -> float:
        """Return the seconds of a draft of one token."""
        return self._line(method, rows).at(1)

    def next(self, method: Method, rows: int) -> float:
        """Return the seconds of one more token for all rows."""
        return self._line(method, rows).slope

    def _line(self, method: Method, rows: int) -> Line:
        lines = self._lines.get(method)
        return lines[_nearest(lines, rows)] if lines else Line()


class Yields:
    """Tokens that a row gets and seconds that a step takes, by load level."""

    def __init__(self) -> None:
        self._lines: dict[int, Line] = {}

    def add(self, rows: int, tokens: int, seconds: float) -> None:
        """Take in a step."""
        line = self._lines.setdefault(load_level_of(rows).low, Line())
        line.add(tokens / rows, seconds)

    def tokens_per_s(self, rows: int) -> float:
        """Return what so many rows get together now; 0 before the first step."""
        if not self._lines:
            return 0.0
        line = self._lines[_nearest(self._lines, rows)]
        return rows * line.x / line.y if line.y > 0 else 0.0


def _nearest(levels: Iterable[int], rows: int) -> int:
    """Return the load level with figures that is nearest to a number of rows, by its low end."""
    wanted = load_level_of(rows).low
    return min(levels, key=lambda low: abs(math.log(low / wanted)))


def _bin(positions: int) -> int:
    """Return the bin of a count: exact for few, four an octave beyond."""
    if positions <= _EXACT_POSITIONS:
        return positions
    return _EXACT_POSITIONS + int(_BINS_PER_OCTAVE * math.log2(positions / _EXACT_POSITIONS))
