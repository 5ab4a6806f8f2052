"""The pace of the machine: what slows all its steps alike, for seconds or for hours.

Neighbours, throttling and other tenants multiply every step time by the same factor. A step time is
shape x pace x noise, so two shapes may be compared only at equal pace. Within a window each
moment's pace is told by all its steps together (``steps_at_equal_pace``); between windows by the
shapes that were timed before (``PaceLog``), whose spread says how far a shape that no other was
timed beside may be wrong. Paces are logarithms: 0 is the pace that step times are stated at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policy.statistics import Floats, Ints

BLOCK_S = 2.0
"""Stretch of time for which a machine is thought to keep its pace, in seconds."""

ROUNDS = 4
FEW_STEPS = 0.1
"""Steps that the guess of an unchanged pace counts for in a stretch of time."""

HUBER_DEVIATIONS = 1.345
_SMALLEST = 1e-9

MOST_DEVIATIONS = 4.0
"""Robust standard deviations from what is expected of a step, beyond which it is cut back."""

MEDIAN_TO_DEVIATION = 1.4826
USUAL_SPREAD = 0.01
USUAL_WINDOWS = 4.0
"""The spread of a quiet machine's pace over windows, and the windows that this guess counts for."""

LEAP_CHANCE = 0.05
LEAP = 1.0
"""A window's pace may be another altogether, by a factor of e or so, with this chance."""

BOUND_SLACK = 0.1
"""How far a pace may go beyond what smaller and larger steps allow: stairs of kernels."""

REMEMBERED = 64
NEAR = 0.15
"""How alike two paces are that are thought to go on alike."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PacedSteps:
    """Steps of one window at the window's usual pace.

    Attributes:
        seconds: [N] their times, were the pace the same throughout.
        block: [N] the stretch of time that each lies in, from 0.
        pace: [B] log pace of each stretch, its usual value 0.
    """

    seconds: Floats
    block: Ints
    pace: Floats


def steps_at_equal_pace(shape: Ints, seconds: Floats, at_s: Floats) -> PacedSteps:
    """Take the wandering of the pace out of the step times of one window.

    The median log time of each shape in each stretch of time is fitted by shape plus stretch, by
    least squares with Huber's weights, so that shapes are compared within stretches and a pause of
    a few steps moves neither. A stretch that holds one shape that no other stretch holds keeps its
    times.

    Args:
        shape: [N] number of each step's shape, from 0.
        seconds: [N] its time, above 0.
        at_s: [N] when it ended, Unix seconds.
    """
    if not len(shape):
        return PacedSteps(seconds=seconds, block=np.zeros(0, dtype=np.intp), pace=np.zeros(0))
    _, block = np.unique(np.floor(at_s / BLOCK_S), return_inverse=True)
    logs = np.log(seconds)
    cells, cell = np.unique(np.column_stack([shape, block]), axis=0, return_inverse=True)
    steps = np.bincount(cell.reshape(-1)).astype(np.float64)
    middle = _medians(logs, cell.reshape(-1), len(cells))
    pace = _fitted_paces(cells, middle, steps)
    pace -= np.median(pace[block])
    expected = _medians(logs - pace[block], shape, int(shape.max()) + 1)
    left = logs - pace[block] - expected[shape]
    most = max(MOST_DEVIATIONS * MEDIAN_TO_DEVIATION * float(np.median(np.abs(left))), 1e-3)
    return PacedSteps(
        seconds=np.exp(expected[shape] + np.clip(left, -most, most)), block=block, pace=pace
    )


def _fitted_paces(cells: Ints, middle: Floats, steps: Floats) -> Floats:
    """Return the log pace of each stretch of time; [B].

    Args:
        cells: [C, 2] number of a shape, and of a stretch that holds steps of it.
        middle: [C] the median of their log times.
        steps: [C] how many they are.
    """
    num_shapes, num_blocks = (int(number) + 1 for number in cells.max(axis=0))
    place = np.arange(len(cells))
    design = np.zeros((len(cells), num_shapes + num_blocks))
    design[place, cells[:, 0]] = design[place, num_shapes + cells[:, 1]] = 1.0
    guess = np.concatenate([np.zeros(num_shapes), np.full(num_blocks, FEW_STEPS)])
    centre = np.average(middle, weights=steps)
    weights = steps
    fitted: Floats = np.zeros(num_shapes + num_blocks)
    for _ in range(ROUNDS):
        weighted = design * weights[:, None]
        normal = design.T @ weighted + np.diag(guess + _SMALLEST)
        fitted = np.asarray(np.linalg.solve(normal, weighted.T @ (middle - centre)), np.float64)
        left = np.abs(middle - centre - design @ fitted)
        usual = max(MEDIAN_TO_DEVIATION * float(np.median(left)), _SMALLEST)
        weights = steps * np.minimum(1.0, HUBER_DEVIATIONS * usual / np.maximum(left, _SMALLEST))
    return fitted[num_shapes:]


def _medians(values: Floats, group: Ints, count: int) -> Floats:
    """Return the median of each group, none of them empty; [count]."""
    order = np.lexsort((values, group))
    sizes = np.bincount(group, minlength=count)
    starts = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    taken = values[order]
    return np.asarray((taken[starts + (sizes - 1) // 2] + taken[starts + sizes // 2]) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What is believed of the pace of one window.

    Attributes:
        log: logarithm of the factor on its step times.
        variance: of that belief.
    """

    log: float
    variance: float


@dataclass(frozen=True, slots=True)
class PaceLog:
    """The paces of the newest windows, oldest first."""

    paces: tuple[Pace, ...] = ()

    @property
    def variance(self) -> float:
        """How far the pace of one window lies from the usual one: its variance."""
        middle = self.usual
        squares = sum((one.log - middle) ** 2 for one in self.paces)
        prior = USUAL_WINDOWS * USUAL_SPREAD**2
        return (prior + squares) / (USUAL_WINDOWS + len(self.paces))

    @property
    def spread_ratio(self) -> float:
        """The slow windows over the quick ones: the 95th over the 5th percentile of the pace."""
        if len(self.paces) < 2:
            return 1.0
        low, high = np.quantile([one.log for one in self.paces], (0.05, 0.95))
        return float(np.exp(high - low))

    @property
    def usual(self) -> float:
        """The median of the logarithms; 0 without windows."""
        return float(np.median([one.log for one in self.paces])) if self.paces else 0.0

    def with_window(self, pace: Pace) -> PaceLog:
        """Return the log with one more window, the oldest left out where there are too many."""
        return PaceLog((*self.paces[1 - REMEMBERED :], pace))

    def told_by(self, errors: Sequence[tuple[float, float, float]]) -> Pace:
        """Return the pace of a window from shapes that were timed before.

        Args:
            errors: for each shape (log of its time over what was expected, variance of that,
                steps); none where the window holds no such shape.
        """
        if not self.paces:
            return Pace(log=0.0, variance=0.0)
        prior = self._expected_next()
        if not errors:
            return prior
        logs, variances, steps = np.array(errors, dtype=np.float64).T
        weights = steps / variances
        middle = _weighted_median(logs, weights)
        seen = Pace(log=middle, variance=1 / float((1 / (variances + USUAL_SPREAD**2)).sum()))
        leap = Pace(log=self.usual, variance=self.variance + LEAP**2)
        return _mixed(seen, ((1 - LEAP_CHANCE, prior), (LEAP_CHANCE, leap)))

    def within(self, low: float, high: float) -> Pace:
        """Return the pace of a window of which no shape was timed before.

        Args:
            low: the least that its logarithm can be, by what larger steps take.
            high: the most, by what smaller steps take.
        """
        expected = self.told_by(())
        if not self.paces or low - BOUND_SLACK <= expected.log <= high + BOUND_SLACK:
            return expected
        nearest = high if expected.log > high else low
        return Pace(log=nearest, variance=max(expected.variance, BOUND_SLACK**2))

    def next_draws(self, generator: np.random.Generator, count: int) -> Floats:
        """Draw the pace of the next window: what came after windows like the newest one; [count].

        Where hardly any was like it, any window will do.
        """
        if len(self.paces) < 2:
            return self.usual + math.sqrt(self.variance) * generator.standard_normal(count)
        logs, chances = self._successors()
        after = generator.choice(logs, size=count, p=chances)
        unsure = math.hypot(USUAL_SPREAD, math.sqrt(self.paces[-1].variance))
        return np.asarray(after + unsure * generator.standard_normal(count))

    def _expected_next(self) -> Pace:
        """Return the mean and variance of what came after windows like the newest one."""
        if len(self.paces) < 2:
            return Pace(log=self.usual, variance=self.variance)
        logs, chances = self._successors()
        mean = float(chances @ logs)
        few = USUAL_WINDOWS / (USUAL_WINDOWS + len(logs))
        spread = float(chances @ (logs - mean) ** 2)
        return Pace(log=mean, variance=USUAL_SPREAD**2 + spread + few * self.variance)

    def _successors(self) -> tuple[Floats, Floats]:
        """Return the paces that came after a window, and how alike that was to the newest."""
        logs = np.array([one.log for one in self.paces])
        likeness = np.exp(-0.5 * ((logs[:-1] - logs[-1]) / NEAR) ** 2) + 1e-3
        return logs[1:], likeness / likeness.sum()


def _mixed(seen: Pace, beliefs: Sequence[tuple[float, Pace]]) -> Pace:
    """Return what is believed after a pace was seen, from one of several beliefs before that.

    Each belief counts for its chance times how likely it made what was seen.
    """
    logs, variances, weights = [], [], []
    for chance, before in beliefs:
        total = before.variance + seen.variance
        kept = before.variance / total
        logs.append(before.log + kept * (seen.log - before.log))
        variances.append(kept * seen.variance)
        weights.append(math.log(chance / math.sqrt(total)))
        weights[-1] -= 0.5 * (seen.log - before.log) ** 2 / total
    shares = np.exp(np.array(weights) - max(weights))
    shares /= shares.sum()
    mean = float(shares @ np.array(logs))
    spread = float(shares @ (np.array(variances) + (np.array(logs) - mean) ** 2))
    return Pace(log=mean, variance=spread)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
