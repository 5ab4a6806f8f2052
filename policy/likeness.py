"""How alike the passes of one window are.

They share their texts, so they count for less than their number. How much less is measured from
how far windows scatter around what is believed: n passes whose outcomes correlate by r are worth
n / (1 + (n - 1) r). Bursts thus cannot freeze a belief.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policy.statistics import Floats
from policy.tally import Tally

FIRST_LIKENESS = 1 / 60
"""Correlation before any was measured: the passes of a window weigh at most 60."""

LEAST_LIKENESS = 1 / 1000
"""Correlation below which it is not trusted to lie: the passes of a window never weigh more."""

FIRST_WINDOWS = 10.0
MEMORY = 0.98
MOST_SCATTER = 9.0
"""A squared deviation, in expected ones, beyond which more says nothing of likeness."""

MIN_ATTEMPTS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """Sums over windows that give the correlation.

    Attributes:
        excess: squared deviations in expected ones, less 1.
        spare: attempts less 1.
    """

    excess: float = FIRST_WINDOWS
    spare: float = FIRST_WINDOWS / FIRST_LIKENESS

    @property
    def correlation(self) -> float:
        """Correlation of two passes of one window."""
        return min(1.0, max(LEAST_LIKENESS, self.excess / self.spare))

    def weight(self, passes: float) -> float:
        """Return what each of so many passes counts for."""
        return 1 / (1 + max(0.0, float(passes) - 1) * self.correlation)

    def of_one_window(self, believed: Floats) -> Floats:
        """Return the Betas of what a single window will show, from those of the mean.

        Beside what is not known of the mean stands how far windows scatter around it, which is as
        if a window were so many independent passes as to scatter that much.

        Args:
            believed: [N, 2, D] parameters.
        """
        passes = max(1.0, 1 / self.correlation - 1)
        return np.asarray(believed * passes / (passes + believed.sum(axis=1, keepdims=True)))

    def updated(self, believed: Floats, tally: Tally) -> Likeness:
        """Return the likeness with one more window.

        Args:
            believed: [2, D] parameters of each position's Beta.
            tally: the window's counts.
        """
        strength = believed.sum(axis=0)
        mean = believed[0] / strength
        usual = tally.attempts * mean * (1 - mean)
        counted = (tally.attempts >= MIN_ATTEMPTS) & (usual > 1)
        spare = tally.attempts[counted] - 1
        unsure = ((strength + tally.attempts) / (strength + 1))[counted]
        gaps = np.square(tally.accepts - tally.attempts * mean)[counted]
        scatter = gaps / (usual[counted] * unsure)
        most = MOST_SCATTER * (1 + spare * self.correlation)
        return Likeness(
            excess=MEMORY * self.excess + float((np.minimum(scatter, most) - 1).sum()),
            spare=MEMORY * self.spare + float(spare.sum()),
        )
