"""The pace of a machine: a factor on every step time, shared by all steps of a moment.

Neighbours, throttling and other tenants slow target passes and drafting alike, for seconds at a
time. The pace lies on the wall clock, and each window is a second of it whatever a policy runs, so
all policies of a world meet the same pace at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from policy.statistics import Floats

MAX_FACTOR = 5.0
"""Factors are uniform from 1 to this, one a world."""

DWELL_S = (5.0, 60.0)
"""Seconds for which a state lasts: uniform between both, anew each time."""


def _never_slow() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pace:
    """Two states of a machine, window by window; by default it is always in the quick one.

    Attributes:
        factor: step time in the slow state over that in the quick one.
        slow_share: [W] share of each window's time in the slow state; windows beyond have none.
    """

    factor: float = 1.0
    slow_share: Floats = field(default_factory=_never_slow)

    def speed(self, window: int) -> float:
        """Return the steps done in a window over those of an always quick machine; 0 to 1."""
        slow = self._slow(window)
        return 1.0 - slow + slow / self.factor

    def mean_square(self, window: int) -> float:
        """Return the mean over the steps of a window of the square of their factor.

        A share s of the time in the slow state holds s / factor of the steps. Their mean factor
        needs no function: it is 1 over the speed.
        """
        slow = self._slow(window)
        return (1.0 - slow + slow * self.factor) / self.speed(window)

    def _slow(self, window: int) -> float:
        return float(self.slow_share[window]) if window < len(self.slow_share) else 0.0


def draw_pace(generator: np.random.Generator, num_windows: int, window_s: float) -> Pace:
    """Draw the pace of one world; it begins in either state, at the begin of a dwell.

    Args:
        generator: source of the factor and of the dwells.
        num_windows: W.
        window_s: length of a window, in seconds.
    """
    length_s = num_windows * window_s
    factor = float(generator.uniform(1.0, MAX_FACTOR))
    starts_slow = int(generator.integers(2))
    dwells = generator.uniform(*DWELL_S, size=2 + int(length_s / DWELL_S[0]))
    moments = np.concatenate(([0.0], np.cumsum(dwells)))
    is_slow = (np.arange(len(dwells)) + starts_slow) % 2
    slow_s = np.concatenate(([0.0], np.cumsum(dwells * is_slow)))
    by_edge = np.interp(np.arange(num_windows + 1) * window_s, moments, slow_s)
    return Pace(factor=factor, slow_share=np.clip(np.diff(by_edge) / window_s, 0.0, 1.0))
