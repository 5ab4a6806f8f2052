"""Counts of timed steps that add up and fade; only ``policy.cost`` keeps tables of them.

And first draft rounds, which are no step times: ``policy.switching`` keeps those.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar, cast

import numpy as np

from collectors.records import Method

MIN_STEPS = 5.0
"""Steps from which a mean counts as measured."""

GROUPS_AN_OCTAVE = 8
"""How alike the sizes of shapes are that are taken together where each was timed too seldom."""

LEAST_COUNT = 0.05
MOST_SHAPES = 4096
"""Shapes that faded away are dropped, and so are the rarest beyond this many of a kind."""

CALIBRATED_COUNT = 10.0
"""What a calibrated time counts for beside those that traffic measured, in steps at most."""

K = TypeVar("K")
Sizes = TypeVar("Sizes", bound=tuple[int, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Discounted count of steps with the sums of their seconds and squared seconds.

    Attributes:
        count: steps.
        total_s: their summed seconds, at equal pace of the machine.
        total_square_s2: their summed squared seconds.
        blocks: stretches of time in which they were taken: steps of one share what slows them.
        windows: windows in which they were taken.
        pace_variance: summed over these, the variance of what is believed of their pace.
    """

    count: float
    total_s: float
    total_square_s2: float = 0.0
    blocks: float = 0.0
    windows: float = 0.0
    pace_variance: float = 0.0

    @property
    def mean_s(self) -> float:
        """Mean seconds."""
        return self.total_s / self.count

    @property
    def relative_error(self) -> float:
        """Standard error of the mean over the mean, were the pace of every window known."""
        variance = max(0.0, self.total_square_s2 / self.count - self.mean_s**2)
        return math.sqrt(variance / (self.blocks or self.count)) / self.mean_s

    @property
    def pace_error(self) -> float:
        """What not knowing the pace of its windows adds to that; windows err apart."""
        return math.sqrt(self.pace_variance) / self.windows if self.windows else 0.0

    def plus(self, other: Timing, weight: float = 1.0) -> Timing:
        """Return self with the other added at a weight."""
        return Timing(
            count=self.count + weight * other.count,
            total_s=self.total_s + weight * other.total_s,
            total_square_s2=self.total_square_s2 + weight * other.total_square_s2,
            blocks=self.blocks + weight * other.blocks,
            windows=self.windows + weight * other.windows,
            pace_variance=self.pace_variance + weight * other.pace_variance,
        )

    def slowed(self, ratio: float) -> Timing:
        """Return self as if every step had taken so many times as long."""
        return replace(
            self, total_s=ratio * self.total_s, total_square_s2=ratio**2 * self.total_square_s2
        )


NOTHING = Timing(count=0.0, total_s=0.0)


def gathered(timings: Mapping[Sizes, Timing]) -> dict[Sizes, Timing]:
    """Return the shapes timed often enough, thin ones of nearly one size taken together.

    Long steps are few a window and the batch changes between windows, so that no single shape may
    ever be timed often enough. Shapes of equal sizes, as plain steps are, keep to themselves.
    """
    found = {shape: timing for shape, timing in timings.items() if timing.count >= MIN_STEPS}
    groups: dict[tuple[int, ...], dict[Sizes, Timing]] = {}
    for shape, timing in timings.items():
        if timing.count < MIN_STEPS:
            groups.setdefault(_group_of(shape), {})[shape] = timing
    for group in groups.values():
        counts = np.array([timing.count for timing in group.values()])
        if counts.sum() >= MIN_STEPS:
            mean = np.rint(np.average(list(group), axis=0, weights=counts)).astype(int).tolist()
            total = reduce(Timing.plus, group.values(), NOTHING)
            found.setdefault(cast("Sizes", tuple(mean)), total)
    return found


def _group_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    sizes = np.rint(GROUPS_AN_OCTAVE * np.log2(np.maximum(shape, 1))).astype(int).tolist()
    return (int(shape[0] == shape[1]), *sizes)


def capped(timings: Mapping[K, Timing]) -> dict[K, Timing]:
    """Return what was measured often enough, counted for no more than a calibration does."""
    return {
        key: NOTHING.plus(timing, min(1.0, CALIBRATED_COUNT / timing.count))
        for key, timing in timings.items()
        if timing.count >= MIN_STEPS
    }


def scaled(timings: Mapping[K, Timing], weight: float) -> dict[K, Timing]:
    """Return what is left after fading by a weight, the rarest dropped."""
    kept: Iterable[tuple[K, Timing]] = timings.items()
    if len(timings) > MOST_SHAPES:
        kept = sorted(kept, key=lambda held: -held[1].count)[:MOST_SHAPES]
    return {
        key: NOTHING.plus(timing, weight)
        for key, timing in kept
        if timing.count * weight >= LEAST_COUNT
    }


def add(timings: dict[K, Timing], key: K, timing: Timing, weight: float) -> None:
    """Add a timing at a weight to what a table has."""
    timings[key] = timings.get(key, NOTHING).plus(timing, weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """First draft rounds of requests: the drafter reads the whole prompt.

    Attributes:
        method: drafting method.
        context_tokens: tokens read, over all rows that drafted.
        rounds: rounds counted.
        total_s: their summed seconds.
    """

    method: Method
    context_tokens: int
    rounds: int
    total_s: float
