"""A profile filled from an engine: what was measured, and the table that worlds are played on.

Nothing is smoothed: a shape that was measured keeps its time, also where more positions took less.
Between measured shapes the table is linear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collectors.records import Method
from policy.errors import InvalidInput
from policy.simulate.profiles import USUAL_CONTEXT_TOKENS, Drafting, DraftTime, Profile
from policy.statistics import Floats, Ints
from policy.types import DraftObservation, StepCost, Window

_CONTEXTS = (0.0, 256.0, 1024.0, 4096.0, 16_384.0)
_REPEATS = 7
"""Steps behind each time, at least."""

_MANY_ROWS = 256
"""Rows up to which a pass takes what as many positions of the largest batch measured take."""

_LEAST_RATIO = 0.5
"""No extrapolation to shorter contexts falls below this share of what was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTime:
    """A target pass with verification, drafting left out.

    Attributes:
        rows: sequences.
        positions: positions computed, at least one a row.
        context_tokens: KV entries of the batch, mean over the repeats.
        seconds: 25th percentile.
    """

    rows: int
    positions: int
    context_tokens: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTime:
    """A draft round in a steady state.

    Attributes:
        way: Drafting that drafted.
        rows: sequences that drafted.
        depth: draft length.
        seconds: 25th percentile.
    """

    way: Drafting
    rows: int
    depth: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftTable(DraftTime):
    """Draft rounds as measured, linear between.

    Attributes:
        table_rows: [A] rows at which the table was filled, rising.
        table_depths: [D] depths at which it was filled, rising.
        table_s: [A, D] seconds.
    """

    table_rows: Floats
    table_depths: Floats
    table_s: Floats

    def seconds(self, rows: Floats | Ints, depth: Ints) -> Floats:
        """Return the seconds of a round; 0 without rows or without depth. Arrays broadcast."""
        wide, deep = np.broadcast_arrays(np.asarray(rows, dtype=np.float64), depth)
        row, row_share = _placed(self.table_rows, wide)
        column, share = _placed(self.table_depths, np.asarray(deep, dtype=np.float64))
        table = self.table_s
        low = (1 - share) * table[row - 1, column - 1] + share * table[row - 1, column]
        high = (1 - share) * table[row, column - 1] + share * table[row, column]
        found = np.maximum(0.0, (1 - row_share) * low + row_share * high)
        return np.asarray(np.where((wide > 0) & (deep > 0), found, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was measured on an engine.

    Attributes:
        verify: target passes by shape.
        rounds: draft rounds by shape.
        catch_up_s: seconds in which a drafter reads one token that it has not seen, by Drafting.
        off_tax_ratio: a plain step with drafters loaded over one without, less 1; the target passes
            hold it already.
    """

    verify: tuple[VerifyTime, ...]
    rounds: tuple[RoundTime, ...]
    catch_up_s: Mapping[Drafting, float]
    off_tax_ratio: float

    def __post_init__(self) -> None:
        """Refuse what gives no table."""
        if len({cell.positions for cell in self.verify}) < 2:
            raise InvalidInput("a calibration needs target passes of two lengths at least")
        times = [cell.seconds for cell in self.verify] + [cell.seconds for cell in self.rounds]
        if not all(0 <= seconds < 1e6 for seconds in times):
            raise InvalidInput("a calibration holds a time that is none")

    def profile(self, name: str = "calibrated", *, is_beyond_usual: bool = False) -> Profile:
        """Return the measured times as a profile.

        Args:
            name: of the profile.
            is_beyond_usual: the context axis counts entries beyond the usual ones of each row, as
                drawn worlds do; otherwise all entries of the batch.
        """
        measured = sorted({cell.rows for cell in self.verify})
        rows = [*measured, max(_MANY_ROWS, 2 * measured[-1])]
        positions = sorted({cell.positions for cell in self.verify})
        usual = USUAL_CONTEXT_TOKENS if is_beyond_usual else 0.0
        contexts = np.array(_CONTEXTS)
        return Profile(
            name=name,
            rows=np.array(rows, dtype=np.float64),
            positions=np.array(positions, dtype=np.float64),
            context_tokens=contexts,
            seconds=np.stack(
                [
                    self._of_rows(min(count, measured[-1]), positions, contexts + usual * count)
                    for count in rows
                ]
            ),
            drafts=self._drafts(),
        )

    def window(self, methods: Mapping[Drafting, Method]) -> Window:
        """Return the times as the service would store them of a calibration.

        Args:
            methods: what drafts by each way.
        """
        return Window(
            start_s=0.0,
            end_s=0.0,
            step_costs=tuple(
                StepCost(
                    rows=cell.rows,
                    positions=cell.positions,
                    context_tokens=round(cell.context_tokens),
                    steps=_REPEATS,
                    total_s=_REPEATS * cell.seconds,
                    total_square_s2=_REPEATS * cell.seconds**2,
                )
                for cell in self.verify
            ),
            draft_costs=tuple(
                DraftObservation(
                    method=methods[cell.way],
                    rows=cell.rows,
                    depth=cell.depth,
                    rounds=_REPEATS,
                    total_s=_REPEATS * cell.seconds,
                )
                for cell in self.rounds
            ),
            is_calibration=True,
        )

    def _of_rows(self, rows: int, positions: Sequence[int], contexts: Floats) -> Floats:
        """Return seconds by positions and context at a measured number of rows; [P, C]."""
        cells: dict[int, list[VerifyTime]] = {}
        for cell in self.verify:
            if cell.rows == rows:
                cells.setdefault(cell.positions, []).append(cell)
        known = sorted(cells)
        curves = np.stack(
            [_along_context(cells[count], contexts, self._entry_s) for count in known]
        )
        places = np.array(known, dtype=np.float64)
        return np.stack(
            [
                [_interpolated(places, column, max(float(count), places[0])) for column in curves.T]
                for count in positions
            ]
        )

    @property
    def _entry_s(self) -> float:
        """Seconds a KV entry takes more, the median of all shapes: one alone is too uncertain."""
        shapes: dict[tuple[int, int], list[VerifyTime]] = {}
        for cell in self.verify:
            shapes.setdefault((cell.rows, cell.positions), []).append(cell)
        slopes = []
        for cells in shapes.values():
            first = min(cells, key=lambda cell: cell.context_tokens)
            last = max(cells, key=lambda cell: cell.context_tokens)
            if last.context_tokens > first.context_tokens:
                entries = last.context_tokens - first.context_tokens
                slopes.append((last.seconds - first.seconds) / entries)
        return max(0.0, float(np.median(slopes))) if slopes else 0.0

    def _drafts(self) -> dict[Drafting, DraftTime]:
        drafts = {way: DraftTime() for way in Drafting}
        for way in Drafting:
            cells = [cell for cell in self.rounds if cell.way is way]
            if cells:
                drafts[way] = _table_of(cells)
        drafts[Drafting.ONE_PASS] = drafts[Drafting.MODEL]
        return drafts


def _table_of(cells: Sequence[RoundTime]) -> DraftTable:
    """Lay cells out; every depth must have been measured at every number of rows."""
    rows = sorted({cell.rows for cell in cells})
    depths = sorted({cell.depth for cell in cells})
    seconds = {(cell.rows, cell.depth): cell.seconds for cell in cells}
    missing = [(row, deep) for row in rows for deep in depths if (row, deep) not in seconds]
    if missing:
        raise InvalidInput(f"draft rounds were not measured at rows and depth {missing[0]}")
    return DraftTable(
        table_rows=np.array(rows, dtype=np.float64),
        table_depths=np.array(depths, dtype=np.float64),
        table_s=np.array([[seconds[row, deep] for deep in depths] for row in rows]),
    )


def _along_context(cells: Sequence[VerifyTime], contexts: Floats, entry_s: float) -> Floats:
    """Return seconds over contexts from those measured, beyond them by what an entry takes."""
    ordered = sorted(cells, key=lambda cell: cell.context_tokens)
    places = np.array([cell.context_tokens for cell in ordered])
    times = np.array([cell.seconds for cell in ordered])
    inside = np.interp(contexts, places, times)
    outside = np.maximum(contexts - places[-1], 0) + np.minimum(contexts - places[0], 0)
    return np.asarray(np.maximum(inside + entry_s * outside, _LEAST_RATIO * times.min()))


def _interpolated(places: Floats, values: Floats, at: float) -> float:
    """Interpolate, beyond the ends by the slope next to them but never below 0."""
    high, share = _placed(places, np.array(at))
    return max(0.0, float((1 - share) * values[high - 1] + share * values[high]))


def _placed(places: Floats, at: Floats) -> tuple[Ints, Floats]:
    """Return the place above each point, and how far it lies between the place below and that."""
    if len(places) == 1:
        return np.zeros(at.shape, dtype=np.intp), np.zeros(at.shape)
    high = np.clip(np.searchsorted(places, at), 1, len(places) - 1)
    below, above = places[high - 1], places[high]
    return high, np.asarray((at - below) / (above - below))
