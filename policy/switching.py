"""What a change of Settings costs, learned from the windows in which something changed.

Drafters catch up, graphs are captured anew: the batch stands still for a while, in proportion to
the share of its rows that change. What a window was busy for beyond its steps and drafts is
compared with the windows in which nothing changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

from collectors.records import LoadLevel, Method, Setting
from policy.goodput import Batch
from policy.statistics import TAIL, Floats
from policy.types import Evidence, Interval, Window

PRIOR_WIDTH_S = 0.1
"""Before any change was seen: nothing is lost, give or take so much where all rows change."""

USUAL_NOISE = 0.02
"""Share of a window by which those without a change differ, before any was seen."""

USUAL_WINDOWS = 2.0
MEMORY_WINDOWS = 64.0
REMEMBERED = 0.98
"""What the evidence of earlier changes keeps of its weight at each new one."""

HOLD_WINDOWS = 30.0
"""For how long a Setting is thought to stay on a route at a load level, before any was seen."""

HOLD_STRENGTH = 10.0
"""Windows for which that guess counts."""

HOLD_MEMORY_WINDOWS = 300.0
LEAST_LOST_WINDOWS = 1e-4
LEAST_LOST_S = 0.01
"""Less than this is nothing to decide by, or to speak of."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Charge:
    """What leaving the Settings that run now costs a batch.

    Attributes:
        lost_windows: [R, A] windows of the whole batch lost by giving a route an arm.
        hold_windows: [R] windows for which a change is expected to hold.
    """

    lost_windows: Floats
    hold_windows: Floats

    @property
    def ratio(self) -> Floats:
        """Share of the time for which a change holds that it loses; [R, A]."""
        return np.asarray(self.lost_windows / self.hold_windows[:, None])


@dataclass(slots=True, kw_only=True)
class _Stay:
    """How long Settings stayed on one route at one load level.

    Attributes:
        windows: windows seen, faded.
        changes: of those, windows in which another Setting came, faded.
    """

    windows: float = 0.0
    changes: float = 0.0

    def add(self, is_change: bool) -> None:
        """Count a window."""
        kept = 1 - 1 / HOLD_MEMORY_WINDOWS
        self.windows = kept * self.windows + 1
        self.changes = kept * self.changes + is_change

    @property
    def hold_windows(self) -> float:
        """Windows for which a Setting stays."""
        changes = HOLD_STRENGTH / HOLD_WINDOWS + self.changes
        return (HOLD_STRENGTH + self.windows) / changes


class SwitchCost:
    """Seconds that the batch loses if all its rows change, as a normal belief."""

    def __init__(self, width_s: float = PRIOR_WIDTH_S) -> None:
        """Start from nothing lost.

        Args:
            width_s: standard deviation of that guess, in seconds.
        """
        self._prior = 1 / width_s**2
        self._weight = 0.0
        self._weighted_s = 0.0
        self._usual = _Usual()
        self._running: dict[str, set[Setting]] = {}
        self._stays: dict[tuple[str, LoadLevel], _Stay] = {}
        self._catch_ups: dict[Method, tuple[float, float]] = {}
        self.window_s = 0.0

    @property
    def mean_s(self) -> float:
        """Seconds expected to be lost if all rows change, reading contexts apart."""
        return max(0.0, self._weighted_s / (self._prior + self._weight))

    @property
    def loss(self) -> Interval:
        """The same with its interval; none below 0."""
        precision = self._prior + self._weight
        mean = self._weighted_s / precision
        half = float(special.ndtri(1 - TAIL)) / math.sqrt(precision)
        low, high = (max(0.0, value) for value in (mean - half, mean + half))
        return Interval(low=low, mean=self.mean_s, high=high)

    def observe(self, window: Window) -> None:
        """Learn from a window; a calibration tells what catching up with contexts takes."""
        for seen in window.catch_ups:
            tokens, seconds = self._catch_ups.get(seen.method, (0.0, 0.0))
            self._catch_ups[seen.method] = (tokens + seen.context_tokens, seconds + seen.total_s)
        length_s = window.end_s - window.start_s
        if window.is_calibration or not 0 < length_s < math.inf:
            return
        self.window_s = length_s
        changed = self._changed_share(window)
        lost = _unaccounted(window)
        if lost is None:
            return
        if changed:
            self._learn(*lost, changed)
        else:
            self._usual.add(lost[0])

    def catch_up_s(self, method: Method, context_tokens: float) -> float:
        """Return the seconds in which a drafter reads so many tokens; 0 where never measured."""
        tokens, seconds = self._catch_ups.get(method, (0.0, 0.0))
        return context_tokens * seconds / tokens if tokens > 0 else 0.0

    def lost_s(self, before: Setting, after: Setting, share: float, context_tokens: float) -> float:
        """Return the seconds of the batch's time that a change is expected to lose.

        Args:
            before: what the rows run.
            after: what they are given.
            share: share of the batch's rows.
            context_tokens: KV entries of the whole batch.
        """
        if before == after:
            return 0.0
        reading = share * context_tokens if after.method != before.method else 0.0
        return share * self.mean_s + self.catch_up_s(after.method, reading)

    def hold_windows(self, route: str, load: LoadLevel) -> float:
        """Return for how many windows a Setting stays, from how long they have stayed there."""
        return self._stays.get((route, load), _Stay()).hold_windows

    def charge(
        self, batch: Batch, running: Mapping[str, Setting], context_tokens: float
    ) -> Charge | None:
        """Return what changes cost a batch of one scene; None where that is nothing to speak of.

        Args:
            batch: the scene.
            running: Setting that runs now, by route; routes that are not named start free.
            context_tokens: KV entries of the batch.
        """
        reading_s = np.array([self.catch_up_s(arm.method, context_tokens) for arm in batch.arms])
        most_s = self.mean_s + float(reading_s.max())
        if not most_s > LEAST_LOST_WINDOWS * self.window_s > 0:
            return None
        names, share = batch.routes[0], batch.rows[0] / batch.rows[0].sum()
        before = [running.get(name) for name in names]
        comes = [[ran is not None and ran != arm for arm in batch.arms] for ran in before]
        reads = [[ran and ran.method != arm.method for arm in batch.arms] for ran in before]
        lost_s = np.array(comes) * self.mean_s + np.array(reads, dtype=np.bool_) * reading_s
        hold = np.array([self.hold_windows(name, batch.loads[0]) for name in names])
        return Charge(lost_windows=lost_s * share[:, None] / self.window_s, hold_windows=hold)

    def _learn(self, share_lost: float, busy_s: float, changed: float) -> None:
        scale = changed / busy_s
        weight = scale**2 / self._usual.variance
        self._weight = REMEMBERED * self._weight + weight
        excess = (share_lost - self._usual.mean) / scale
        self._weighted_s = REMEMBERED * self._weighted_s + weight * excess

    def _changed_share(self, window: Window) -> float:
        """Return the share of live passes on routes to which a Setting came that did not run."""
        settings: dict[str, set[Setting]] = {}
        passes: dict[str, int] = {}
        places = set()
        for seen in window.observations:
            if seen.evidence is Evidence.LIVE and seen.planned_passes > 0:
                settings.setdefault(seen.route, set()).add(seen.setting)
                passes[seen.route] = passes.get(seen.route, 0) + seen.passes
                places.add((seen.route, seen.load))
        changed = {name for name, ran in settings.items() if not ran <= self._ran(name, ran)}
        for route, load in places:
            self._stays.setdefault((route, load), _Stay()).add(route in changed)
        self._running |= settings
        return sum(passes[name] for name in changed) / sum(passes.values()) if passes else 0.0

    def _ran(self, route: str, first: set[Setting]) -> set[Setting]:
        return self._running.get(route, first)


class _Usual:
    """The share of a window that no step accounts for where nothing changes, fading."""

    def __init__(self) -> None:
        self._windows = 0.0
        self._total = 0.0
        self._squares = USUAL_WINDOWS * USUAL_NOISE**2

    @property
    def mean(self) -> float:
        """Mean share; 0 before any window."""
        return self._total / self._windows if self._windows else 0.0

    @property
    def variance(self) -> float:
        """Variance from window to window."""
        around = self._squares - self._windows * self.mean**2
        return max(around, USUAL_WINDOWS * USUAL_NOISE**2) / (USUAL_WINDOWS + self._windows)

    def add(self, share: float) -> None:
        """Count a window."""
        kept = 1 - 1 / MEMORY_WINDOWS
        least = USUAL_WINDOWS * USUAL_NOISE**2
        self._windows = kept * self._windows + 1
        self._total = kept * self._total + share
        self._squares = least + kept * (self._squares - least) + share**2


def _unaccounted(window: Window) -> tuple[float, float] | None:
    """Return the share of the busy time that is neither step nor draft, and the busy seconds.

    None where no step was timed, and where steps add up to more, as beside shadow traffic.
    """
    busy_s = sum(mix.busy_s for mix in window.mixes)
    counted_s = sum(cost.total_s for cost in window.step_costs)
    counted_s += sum(cost.total_s for cost in window.draft_costs)
    if not (0 < busy_s < math.inf and 0 < counted_s <= busy_s * (1 + 1e-9)):
        return None
    return 1 - counted_s / busy_s, busy_s
