"""Counts of one kind of traffic over time, in few buckets, and the cut at which they changed.

Buckets double in length with age, as in ADWIN (Bifet and Gavalda, 2007), so that weeks cost tens of
buckets and every cut between two of them is looked at. Unlike there, counts are sums over windows
and windows share requests: how much more they scatter than independent counts would is measured
wherever two buckets of one length are merged, up to the longest; a change must stand out of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from collectors.records.parsing import JsonObject, as_object, integer, items, number, text
from policy.statistics import Floats

Contrast: TypeAlias = Callable[[Floats, Floats], Floats]
"""Standard scores of newer counts against older ones, if all counts were independent; [N, C, P, 2]
each, of [N] cuts. A positive score means more of what is wanted."""

BUCKETS_PER_LEVEL = 4
BORROWED = 8.0
"""Merges that the scatter of the next shorter buckets stands for where there are few of them."""

MOST_GROWTH = 9.0
"""A merge that scatters more than this times the shorter buckets is a change, not scatter."""

MIN_MERGES = 8
LEVELS_ABOVE = 2
"""A side of a cut scatters like buckets up to this much longer: neighbours are more alike than
strangers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bucket:
    """The counts of 2 ** level neighbouring windows with traffic.

    Attributes:
        start_s: start of the first window, Unix seconds.
        end_s: end of the last one.
        level: how often buckets were merged into it.
        counts: [C, P, 2] by cell and position: tries and hits.
    """

    start_s: float
    end_s: float
    level: int
    counts: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """Where a history parts into before and after.

    Attributes:
        place: first bucket after it.
        since_s: start of that bucket, Unix seconds.
        score: standard score of what came after, scatter allowed for.
        square: its square without that allowance.
        before: [C, P, 2] counts before.
        after: [C, P, 2] counts after.
    """

    place: int
    since_s: float
    score: float
    square: float
    before: Floats
    after: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """What was counted, oldest first.

    Attributes:
        cells: names of the cells, C.
        positions: P.
        buckets: oldest first.
        scatter: by level, summed squared scores of merges and their number.
    """

    cells: tuple[str, ...] = ()
    positions: int
    buckets: tuple[Bucket, ...] = ()
    scatter: tuple[tuple[float, int], ...] = ()

    def added(
        self, counts: Mapping[str, Floats], start_s: float, end_s: float, contrast: Contrast
    ) -> History:
        """Return the history with one window's counts, [P, 2] by cell, added."""
        wider = self._with_cells(tuple(name for name in counts if name not in self.cells))
        table = np.zeros((len(wider.cells), self.positions, 2))
        for name, tries_and_hits in counts.items():
            table[wider.cells.index(name)] = tries_and_hits
        newest = Bucket(start_s=start_s, end_s=end_s, level=0, counts=table)
        return replace(wider, buckets=(*wider.buckets, newest))._merged(contrast)

    def after(self, cut: Cut) -> History:
        """Return the history without what came before a cut.

        The change counts as scatter of its length from now on: traffic that goes back and forth
        must go further each time to stand out.
        """
        kept, scatter = self.buckets[cut.place :], list(self.scatter)
        level = int(math.log2(sum(2**bucket.level for bucket in kept)))
        while len(scatter) <= level:
            scatter.append((0.0, 0))
        total, merges = scatter[level]
        scatter[level] = (total + cut.square, merges + 1)
        return replace(self, buckets=kept, scatter=tuple(scatter))

    def scatter_ratios(self) -> Floats | None:
        """Return by level how much more scores scatter than independent counts; None if unknown.

        Longer buckets never scatter less than shorter ones; where few were merged, they are
        thought to scatter like them.
        """
        if not self.scatter or self.scatter[0][1] < MIN_MERGES:
            return None
        ratios = [max(1.0, self.scatter[0][0] / self.scatter[0][1])]
        for total, merges in self.scatter[1:]:
            ratios.append((BORROWED * ratios[-1] + total) / (BORROWED + merges))
        return np.maximum.accumulate(ratios)

    def clearest_cut(self, contrast: Contrast, min_before: int, min_after: int) -> Cut | None:
        """Return the cut with the largest score; None without enough windows on both sides of it.

        A clearer cut that is too young is waited for: what lies before it belongs to before.

        Args:
            contrast: scores of newer counts against older ones.
            min_before: windows needed before a cut.
            min_after: windows needed after it.
        """
        ratios, lengths = self.scatter_ratios(), 2.0 ** np.array([b.level for b in self.buckets])
        passed = np.cumsum(lengths)
        left = passed[-1] - passed
        places = np.flatnonzero((passed >= min_before) & (left > 0)) + 1
        if ratios is None or not len(places):
            return None
        sums = np.cumsum(np.stack([bucket.counts for bucket in self.buckets]), axis=0)
        before = sums[places - 1]
        after = sums[-1] - before
        shorter = np.log2(np.minimum(passed, left)[places - 1])
        level = np.minimum(shorter.astype(int) + LEVELS_ABOVE, len(ratios) - 1)
        scores = contrast(before, after) / np.sqrt(ratios[level])
        best = int(np.argmax(np.abs(scores)))
        if left[places[best] - 1] < min_after:
            return None
        return Cut(
            place=int(places[best]),
            since_s=self.buckets[places[best]].start_s,
            score=float(scores[best]),
            square=float(scores[best] ** 2 * ratios[level[best]]),
            before=before[best],
            after=after[best],
        )

    def newest_counts(self, min_windows: int) -> tuple[float, Floats] | None:
        """Return start and counts of the newest windows; None where there are fewer."""
        found, counts = 0, np.zeros((len(self.cells), self.positions, 2))
        for bucket in reversed(self.buckets):
            found, counts = found + int(2**bucket.level), counts + bucket.counts
            if found >= min_windows:
                return bucket.start_s, counts
        return None

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        return {
            "cells": list(self.cells),
            "positions": self.positions,
            "buckets": [
                [one.start_s, one.end_s, one.level, one.counts.astype(int).ravel().tolist()]
                for one in self.buckets
            ],
            "scatter": [list(level) for level in self.scatter],
        }

    @classmethod
    def from_dict(cls, data: JsonObject) -> History:
        """Read the wire form."""
        cells = tuple(text({"cell": name}, "cell") for name in items(data, "cells"))
        positions = integer(data, "positions")
        shape = (len(cells), positions, 2)
        return cls(
            cells=cells,
            positions=positions,
            buckets=tuple(_bucket(row, shape) for row in items(data, "buckets")),
            scatter=tuple(_scatter(row) for row in items(data, "scatter")),
        )

    def _with_cells(self, names: tuple[str, ...]) -> History:
        if not names:
            return self
        more = ((0, len(names)), (0, 0), (0, 0))
        buckets = tuple(replace(b, counts=np.pad(b.counts, more)) for b in self.buckets)
        return replace(self, cells=(*self.cells, *names), buckets=buckets)

    def _merged(self, contrast: Contrast) -> History:
        buckets, scatter = list(self.buckets), list(self.scatter)
        level = 0
        while sum(bucket.level == level for bucket in buckets) > BUCKETS_PER_LEVEL:
            place = next(i for i, bucket in enumerate(buckets) if bucket.level == level)
            older, newer = buckets[place : place + 2]
            score = float(contrast(older.counts[None], newer.counts[None])[0])
            _note_scatter(scatter, level, score * score)
            buckets[place : place + 2] = [
                Bucket(
                    start_s=older.start_s,
                    end_s=newer.end_s,
                    level=level + 1,
                    counts=older.counts + newer.counts,
                )
            ]
            level += 1
        return replace(self, buckets=tuple(buckets), scatter=tuple(scatter))


def _note_scatter(scatter: list[tuple[float, int]], level: int, square: float) -> None:
    if level == len(scatter):
        scatter.append((0.0, 0))
    base, (total, merges) = max(0, level - 1), scatter[level]
    known, count = scatter[base]
    if count >= MIN_MERGES:
        square = min(square, MOST_GROWTH * max(1.0, known / count))
    scatter[level] = (total + square, merges + 1)


def _bucket(row: object, shape: tuple[int, int, int]) -> Bucket:
    start_s, end_s, level, counts = items({"bucket": row}, "bucket")
    named = as_object({"start_s": start_s, "end_s": end_s, "level": level}, "bucket")
    return Bucket(
        start_s=number(named, "start_s"),
        end_s=number(named, "end_s"),
        level=integer(named, "level"),
        counts=np.array(items({"counts": counts}, "counts"), dtype=float).reshape(shape),
    )


def _scatter(row: object) -> tuple[float, int]:
    total, merges = items({"scatter": row}, "scatter")
    named = {"total": total, "merges": merges}
    return number(named, "total"), integer(named, "merges")
