"""``spectuner bench drift``: how soon a slide is told, and how often there was none."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policy.drift import DriftState, watch
from policy.drift_alarms import AlarmKind
from policy.errors import InvalidInput
from policy.simulate.wear import Wear, worn_windows

WEEK_S = 7 * 86_400.0
WITHIN_REQUESTS = 2000
_CHANGES = (AlarmKind.DECAY, AlarmKind.RISE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftBenchOptions:
    """What to measure.

    Attributes:
        weeks: route-weeks without a change.
        slides: runs with a slide.
        requests_per_minute: mean rate of the route.
        shared_deviation: how far the ease that requests of one time share wanders, in logits.
        quiet_hours: time before a slide, in hours.
    """

    weeks: int = 10
    slides: int = 20
    requests_per_minute: float = 6.0
    shared_deviation: float = 0.05
    quiet_hours: float = 12.0

    def checked(self) -> Wear:
        """Return the route to play.

        Raises:
            InvalidInput: a value is out of range.
        """
        if not 0 < self.requests_per_minute <= 10_000:
            raise InvalidInput(f"requests must be above 0 a minute, got {self.requests_per_minute}")
        if not 0 <= self.shared_deviation < math.inf:
            raise InvalidInput(f"a deviation must be 0 or more, got {self.shared_deviation}")
        return Wear(
            requests_per_window=self.requests_per_minute, shared_deviation=self.shared_deviation
        )

    @property
    def command(self) -> str:
        """The command that gives the figures again."""
        words = ["spectuner", "bench", "drift", "--weeks", self.weeks, "--slides", self.slides]
        words += ["--requests", f"{self.requests_per_minute:g}"]
        words += ["--wander", f"{self.shared_deviation:g}", "--quiet", f"{self.quiet_hours:g}"]
        return shlex.join(map(str, words))


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftBench:
    """What was measured.

    Attributes:
        options: what was asked for.
        false_alarms: alarms of a change in each route-week without one.
        waits: requests from the begin of each slide to its alarm; None where none came within
            twice WITHIN_REQUESTS.
        window_us: thread-CPU time of one window, in microseconds.
    """

    options: DriftBenchOptions
    false_alarms: tuple[int, ...]
    waits: tuple[int | None, ...]
    window_us: float

    @property
    def told_in_time(self) -> int:
        """Slides told within WITHIN_REQUESTS."""
        return sum(wait is not None and wait <= WITHIN_REQUESTS for wait in self.waits)

    @property
    def median_wait(self) -> float | None:
        """Median of the waits, slides never told being the longest; None where those are half."""
        if not self.waits:
            return None
        found = float(np.median([math.inf if wait is None else wait for wait in self.waits]))
        return found if math.isfinite(found) else None

    def to_dict(self) -> dict[str, object]:
        """Return the figures."""
        weeks = len(self.false_alarms)
        return {
            "command": self.options.command,
            "route_weeks": weeks,
            "false_alarms": list(self.false_alarms),
            "false_alarms_per_week": sum(self.false_alarms) / weeks if weeks else None,
            "slides": len(self.waits),
            "within_requests": WITHIN_REQUESTS,
            "told_in_time": self.told_in_time,
            "waits": list(self.waits),
            "median_wait": self.median_wait,
            "window_us": self.window_us,
        }


def bench_drift(options: DriftBenchOptions, on_run: Callable[[], object]) -> DriftBench:
    """Play quiet route-weeks and slides from 3.07 to 2.80 tokens a pass; seeds are fixed.

    Args:
        options: what to measure.
        on_run: called after each run.
    """
    wear, begun_s, windows = options.checked(), time.thread_time(), 0
    alarms = []
    for seed in range(options.weeks):
        found = _changes(wear, int(WEEK_S / wear.window_s), seed)
        alarms.append(len(found))
        windows += int(WEEK_S / wear.window_s)
        on_run()
    waits: list[int | None] = []
    for seed in range(options.slides):
        waits.append(_wait(wear, options.quiet_hours * 3600, 1000 + seed))
        on_run()
    spent_s = time.thread_time() - begun_s
    return DriftBench(
        options=options,
        false_alarms=tuple(alarms),
        waits=tuple(waits),
        window_us=spent_s / windows * 1e6 if windows else math.nan,
    )


def _changes(wear: Wear, num_windows: int, seed: int) -> list[tuple[AlarmKind, int]]:
    state, found = DriftState(), []
    for one in worn_windows(wear, num_windows, np.random.default_rng(seed)):
        state, alarms = watch(state, one.window)
        found += [(alarm.kind, one.requests) for alarm in alarms if alarm.kind in _CHANGES]
    return found


def _wait(wear: Wear, quiet_s: float, seed: int) -> int | None:
    """Return how many requests after the begin of a slide it was told; None where it was not."""
    begin = int(quiet_s / wear.window_s * wear.requests_per_window)
    sliding = Wear(
        requests_per_window=wear.requests_per_window,
        shared_deviation=wear.shared_deviation,
        slide_from=begin,
    )
    longest = (begin + 2 * WITHIN_REQUESTS) / wear.requests_per_window
    waits = [
        requests - begin
        for kind, requests in _changes(sliding, math.ceil(longest), seed)
        if kind is AlarmKind.DECAY and requests > begin
    ]
    return waits[0] if waits else None
