"""What a step costs at equal pace: the measured table, and a smoother where nothing was measured.

Step time need not rise with the positions computed (a matrix kernel for 4 rows can beat one for
3), so a measured mean is never smoothed away. Between measured shapes a non-negative linear trend
is bent through its nearest measurements; far from any of them the answer is None: no data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from collectors.records import Method
from policy.adaptive import AdaptiveRounds
from policy.errors import InvalidInput
from policy.pace import Pace, PaceLog
from policy.smoother import (
    LEAST_ERROR,
    MIN_CONTEXT_TOKENS,
    REACH_OCTAVES,
    DraftSmoother,
    Reach,
    StepSmoother,
)
from policy.sound_costs import DraftShape, Shape, costs, is_sound_step, reasons
from policy.statistics import Floats, Ints
from policy.timings import MIN_STEPS, NOTHING, Timing, add, capped, gathered, scaled
from policy.types import StepCost, Window
from policy.window_pace import window_pace

SAME_CONTEXT_OCTAVES = 0.585
"""Contexts within a factor of 1.5 count as the same shape."""

WARY = 0.9
"""What a step may take of one with a row more, where batches are padded to the smaller number; or
of one that was timed too seldom."""

NEAR = 0.5
"""Size of a step over that of a larger one from which the larger one tells of it."""

MAX_WEIGHT = 100.0
SURE_ERRORS = 3.0
"""Errors by which a larger step must lie below a plain one to be believed quicker."""

NEWS_ERRORS = 3.0
"""Errors by which a step time must miss what was expected, to be news."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CostModel:
    """Measured step and draft times, fading with time.

    Attributes:
        half_life_s: time in which a count loses half its weight, in seconds.
        as_of_s: moment to which the counts have faded; None before the first window.
        steps: step times by shape.
        drafts: draft round times by method, rows and depth.
        ignored: costs left out, and why.
        calibrated_steps: step times of an idle engine, used where traffic has measured nothing.
        calibrated_drafts: draft round times, likewise.
        adaptive_rounds: draft rounds of adaptive Settings and how deep they went.
        paces: the machine's pace in the newest windows; times are stated at pace 1.
    """

    half_life_s: float
    as_of_s: float | None
    steps: Mapping[Shape, Timing]
    drafts: Mapping[DraftShape, Timing]
    ignored: tuple[str, ...]
    calibrated_steps: Mapping[Shape, Timing] = field(default_factory=dict)
    calibrated_drafts: Mapping[DraftShape, Timing] = field(default_factory=dict)
    adaptive_rounds: AdaptiveRounds = field(default_factory=AdaptiveRounds)
    paces: PaceLog = field(default_factory=PaceLog)

    @classmethod
    def empty(cls, half_life_s: float = 86_400.0) -> CostModel:
        """Return a model that has seen nothing.

        Raises:
            InvalidInput: the half-life is not above 0.
        """
        if not half_life_s > 0:
            raise InvalidInput(f"a half-life must be above 0 seconds, got {half_life_s}")
        return cls(half_life_s=half_life_s, as_of_s=None, steps={}, drafts={}, ignored=())

    def updated(self, window: Window) -> CostModel:
        """Return the model with a window's costs added; impossible ones are named in ``ignored``.

        A late window comes in as faded as if it had come in time, a calibration takes the place of
        the one before.
        """
        if window.is_calibration:
            steps, drafts = costs(window)
            return replace(
                self,
                calibrated_steps=capped(steps),
                calibrated_drafts=capped(drafts),
                ignored=(*self.ignored, *reasons(window)),
            )
        if not math.isfinite(window.end_s):
            reason = f"window ends at {window.end_s}, which is no time"
            return replace(self, ignored=(*self.ignored, reason))
        before = window.end_s if self.as_of_s is None else self.as_of_s
        as_of_s = max(before, window.end_s)
        faded, fresh = self._weight(as_of_s - before), self._weight(as_of_s - window.end_s)
        steps, drafts = scaled(self.steps, faded), scaled(self.drafts, faded)
        new_steps, new_drafts = costs(window)
        pace = window_pace(steps, new_steps, self.paces)
        quick = math.exp(-pace.log)
        for shape, timing in new_steps.items():
            paced = replace(timing.slowed(quick), pace_variance=pace.variance)
            add(steps, shape, paced, fresh)
        for draft_shape, timing in new_drafts.items():
            add(drafts, draft_shape, timing.slowed(quick), fresh)
        ignored = (*self.ignored, *reasons(window))
        return replace(
            self,
            as_of_s=as_of_s,
            steps=steps,
            drafts=drafts,
            ignored=ignored,
            adaptive_rounds=self.adaptive_rounds.updated(window, faded, fresh),
            paces=self.paces.with_window(pace) if new_steps else self.paces,
        )

    def pace_of(self, window: Window, paces: PaceLog) -> Pace:
        """Return the pace of a window that was not learned from yet, after others."""
        return window_pace(self.steps, costs(window)[0], paces)

    def measured(self, rows: float, positions: float, context_tokens: float) -> Timing | None:
        """Return the timing of a shape that was measured often enough; None otherwise."""
        total = NOTHING
        for context, timing in self._by_size.get((rows, positions), ()):
            if abs(_octaves(context, context_tokens)) <= SAME_CONTEXT_OCTAVES:
                total = total.plus(timing)
        return total if total.count >= MIN_STEPS else None

    def step_table_s(
        self,
        rows: float,
        positions: Floats,
        context_tokens: float,
        reach: Reach = REACH_OCTAVES,
    ) -> Floats:
        """Return the seconds of passes with these positions; NaN where there is no data.

        Args:
            rows: sequences in the passes; may be a mean.
            positions: [N] positions computed.
            context_tokens: KV entries held by the batch.
            reach: how far from measured shapes there is an answer, in octaves.
        """
        shapes = np.column_stack(
            [np.full_like(positions, rows), positions, np.full_like(positions, context_tokens)]
        )
        table = self._step_smoother.seconds(shapes, reach)
        for index, count in enumerate(positions):
            timing = self.measured(rows, float(count), context_tokens)
            if timing is not None:
                table[index] = timing.mean_s
        return table

    def step_error_ratio(self, rows: float, positions: float, context_tokens: float) -> float:
        """Return the relative error of a step time.

        The smoother's where it was not measured. Elsewhere the standard error of the mean, but at
        least the smoother's over the root of the count: a few steps may agree by chance.
        """
        usual = self._step_smoother.error_ratio
        timing = self.measured(rows, positions, context_tokens)
        if timing is None:
            return usual
        least = max(LEAST_ERROR, usual / math.sqrt(timing.count))
        return min(1.0, max(least, timing.relative_error))

    def pace_error_ratio(self, rows: float, positions: float, context_tokens: float) -> float:
        """Return what not knowing the machine's pace adds to the relative error of a step time.

        Of a step that was not measured, what it adds to the usual measured one.
        """
        timing = self.measured(rows, positions, context_tokens)
        return self._usual_pace_error if timing is None else timing.pace_error

    def is_surely_quicker(self, rows: float, positions: float, context_tokens: float) -> bool:
        """True where steps of more positions were measured to take less than plain ones."""
        more = self.measured(rows, positions, context_tokens)
        plain = self.measured(rows, rows, context_tokens)
        if more is None or plain is None:
            return False
        errors = (more.relative_error, more.pace_error, plain.relative_error, plain.pace_error)
        return math.log(plain.mean_s / more.mean_s) > SURE_ERRORS * math.hypot(*errors, LEAST_ERROR)

    def draft_table_s(
        self, method: Method, rows: Floats, depths: Ints, reach: float = 1.0
    ) -> Floats:
        """Return the seconds of draft rounds; [rows, depths], NaN where there is no data.

        Args:
            method: drafting method.
            rows: sequences that draft.
            depths: longest draft asked for, in tokens.
            reach: factor on how far beyond what was measured there is an answer.
        """
        shape = (len(rows), len(depths))
        if method is Method.OFF:
            return np.zeros(shape)
        cells = self._measured_drafts.get(method, {})
        grid = np.array([(row, depth) for row in rows for depth in depths])
        table = np.full(shape, np.nan)
        if method in self._draft_smoothers:
            table = self._draft_smoothers[method].seconds(grid, reach).reshape(shape)
        at_row = {float(row): index for index, row in enumerate(rows)}
        at_depth = {int(depth): index for index, depth in enumerate(depths)}
        for (row, depth), seconds in cells.items():
            if row in at_row and depth in at_depth:
                table[at_row[row], at_depth[depth]] = seconds
        table[:, depths == 0] = 0.0
        table[rows == 0] = 0.0
        return table

    def is_news(self, costs: Iterable[StepCost]) -> bool:
        """True where steps took other times than this model says, or it says nothing of them."""
        sound = [cost for cost in costs if is_sound_step(cost)]
        if not sound:
            return False
        shapes = np.array([(cost.rows, cost.positions, cost.context_tokens) for cost in sound])
        took = np.array([cost.total_s / cost.steps for cost in sound])
        expected = self._step_smoother.seconds(shapes.astype(np.float64))
        left = np.log(took / expected) - self.paces.usual
        spread = math.hypot(self._step_smoother.error_ratio, math.sqrt(self.paces.variance))
        held = np.abs(left) <= NEWS_ERRORS * spread
        return not bool(held.all())

    def least_plain_s(self, rows: float, context_tokens: float) -> float | None:
        """Return the least that a plain step of so many rows may take; None if nothing tells.

        No less than the largest measured step that lies within it both ways. Nor less than its
        share of one a little larger, but for a stair: what a step takes for each row, position and
        KV entry does not rise with their number, as engines are bound by reading or by computing.
        """
        shapes, seconds = self._shapes_and_seconds
        if not len(shapes):
            return None
        within = np.flatnonzero(shapes[:, :2].max(axis=1) <= rows)
        largest = within[np.lexsort((shapes[within, 0], shapes[within, 1]))[-1:]]
        sizes = np.array([rows, rows, max(context_tokens, MIN_CONTEXT_TOKENS)])
        share = np.min(sizes / np.maximum(shapes, [1, 1, MIN_CONTEXT_TOKENS]), axis=1)
        is_near = (share >= NEAR) | (len(largest) == 0)
        is_near[within] = False
        near_s = WARY * (seconds * np.minimum(share, 1.0))[is_near]
        known_s = [seconds[largest], near_s, self._thin_s(rows, largest)]
        return float(np.concatenate(known_s).max(initial=0.0)) or None

    def _thin_s(self, rows: float, largest: Ints) -> Floats:
        """Return what the fastest of the plain steps says that were timed too seldom; [0 or 1].

        Only of those that are larger than any step measured within so many rows.
        """
        above = self._shapes_and_seconds[0][largest, 0].max(initial=0.0)
        timed = [mean_s for size, mean_s in self._thin_plain if above < size <= rows]
        return np.array([WARY * min(timed)] if timed else [])

    @cached_property
    def _thin_plain(self) -> tuple[tuple[int, float], ...]:
        """Rows and mean times of the plain steps that were timed too seldom."""
        thin = self.steps.keys() - self._measured_steps.keys()
        return tuple((s[0], self.steps[s].mean_s) for s in thin if s[0] == s[1])

    @cached_property
    def _shapes_and_seconds(self) -> tuple[Floats, Floats]:
        """The measured shapes and their mean times; [N, 3] and [N]."""
        shapes = np.array(list(self._measured_steps), dtype=np.float64).reshape(-1, 3)
        return shapes, np.array([timing.mean_s for timing in self._measured_steps.values()])

    @cached_property
    def measured_positions(self) -> Floats:
        """Positions of the steps measured, rising; [N]."""
        return np.unique(np.array([shape[1] for shape in self._measured_steps], dtype=np.float64))

    def rows_of(self, low: int, high: int) -> tuple[tuple[int, int, float], ...]:
        """Return the measured (rows, positions, mean seconds) with rows from low to high."""
        found: dict[tuple[int, int], Timing] = {}
        for (rows, positions, _), timing in self._measured_steps.items():
            if low <= rows <= high:
                add(found, (rows, positions), timing, 1.0)
        return tuple((*shape, timing.mean_s) for shape, timing in sorted(found.items()))

    def num_shapes(self, low: int, high: int) -> tuple[int, int]:
        """Return how many shapes with rows from low to high were calibrated only, and all."""
        held = [shape for shape in self._measured_steps if low <= shape[0] <= high]
        return sum(shape not in self._seen_steps for shape in held), len(held)

    @cached_property
    def _seen_steps(self) -> dict[Shape, Timing]:
        return gathered(self.steps)

    @cached_property
    def _seen_beside(self) -> dict[Shape, Timing]:
        """What traffic measured of calibrated shapes, where it did."""
        by_size: dict[tuple[int, int], list[tuple[int, Timing]]] = {}
        for (rows, positions, context), timing in self._seen_steps.items():
            by_size.setdefault((rows, positions), []).append((context, timing))
        found: dict[Shape, Timing] = {}
        for shape in self.calibrated_steps:
            for context, timing in by_size.get(shape[:2], ()):
                if abs(_octaves(context, shape[2])) <= SAME_CONTEXT_OCTAVES:
                    add(found, shape, timing, 1.0)
        return found

    @cached_property
    def calibration_ratio(self) -> float:
        """Times of traffic over calibrated ones: the machine may be slower or faster by now.

        The weighted mean of logarithms over the shapes that both measured; 1 without any.
        """
        both = [(one, self.calibrated_steps[shape]) for shape, one in self._seen_beside.items()]
        if not both:
            return 1.0
        weights = np.array([min(seen.count, MAX_WEIGHT) for seen, _ in both])
        logs = np.log([seen.mean_s / calibrated.mean_s for seen, calibrated in both])
        return float(np.exp(np.average(logs, weights=weights)))

    @cached_property
    def _measured_steps(self) -> dict[Shape, Timing]:
        gaps = {
            shape: timing.slowed(self.calibration_ratio)
            for shape, timing in self.calibrated_steps.items()
            if shape not in self._seen_beside
        }
        return self._seen_steps | gaps

    @cached_property
    def _by_size(self) -> dict[tuple[float, float], list[tuple[int, Timing]]]:
        found: dict[tuple[float, float], list[tuple[int, Timing]]] = {}
        for (rows, positions, context), timing in self._measured_steps.items():
            found.setdefault((rows, positions), []).append((context, timing))
        return found

    @cached_property
    def _measured_drafts(self) -> dict[Method, dict[tuple[int, int], float]]:
        found: dict[Method, dict[tuple[int, int], float]] = {}
        ratio = self.calibration_ratio
        for (method, rows, depth), timing in self.calibrated_drafts.items():
            found.setdefault(method, {})[rows, depth] = ratio * timing.mean_s
        timed: dict[Method, dict[tuple[int, int], Timing]] = {}
        for (method, rows, depth), timing in self.drafts.items():
            timed.setdefault(method, {})[rows, depth] = timing
        for method, cells in timed.items():
            for cell, timing in gathered(cells).items():
                found.setdefault(method, {})[cell] = timing.mean_s
        return found

    @cached_property
    def _step_smoother(self) -> StepSmoother:
        cells = self._measured_steps
        return StepSmoother(
            shapes=np.array(list(cells), dtype=np.float64).reshape(-1, 3),
            seconds=np.array([timing.mean_s for timing in cells.values()]),
            weights=np.array([min(timing.count, MAX_WEIGHT) for timing in cells.values()]),
        )

    @cached_property
    def _usual_pace_error(self) -> float:
        """The root mean square over the measured shapes; 0 without any."""
        errors = [timing.pace_error**2 for timing in self._measured_steps.values()]
        return math.sqrt(sum(errors) / len(errors)) if errors else 0.0

    @cached_property
    def _draft_smoothers(self) -> dict[Method, DraftSmoother]:
        return {method: DraftSmoother(cells) for method, cells in self._measured_drafts.items()}

    def _weight(self, age_s: float) -> float:
        return float(2.0 ** (-age_s / self.half_life_s))


def _octaves(context: float, other: float) -> float:
    return math.log2(max(context, 16) / max(other, 16))
