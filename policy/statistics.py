"""Small closed-form statistics that several parts of the policy share."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from policy.errors import InvalidInput
from policy.types import Interval

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
Bools: TypeAlias = NDArray[np.bool_]

TAIL = 0.05
"""Chance on each side of every interval shown: they hold 90 %."""

_SHARPEST = 1e-12


def beta_intervals(alpha: Floats, beta: Floats) -> tuple[Interval, ...]:
    """Return mean and 90 % interval of each Beta(alpha, beta); the mean lies inside."""
    mean = alpha / (alpha + beta)
    low = np.minimum(np.asarray(special.betaincinv(alpha, beta, TAIL)), mean)
    high = np.maximum(np.asarray(special.betaincinv(alpha, beta, 1 - TAIL)), mean)
    return tuple(
        Interval(low=float(a), mean=float(m), high=float(b))
        for a, m, b in zip(low, mean, high, strict=True)
    )


def sample_interval(samples: Floats, mean: float) -> Interval:
    """Return the 90 % interval of samples around a mean that was computed apart from them."""
    low, high = np.quantile(samples, (TAIL, 1 - TAIL))
    return Interval(low=min(float(low), mean), mean=mean, high=max(float(high), mean))


def ratio_interval(top: Floats, bottom: Floats) -> Interval:
    """Return a ratio of sums with its 90 % interval, each pair of summands one draw."""
    value, count = float(top.sum() / bottom.sum()), len(top)
    if count < 2:
        return Interval(low=-math.inf, mean=value, high=math.inf)
    left = top - value * bottom
    error = math.sqrt(count / (count - 1) * float((left**2).sum())) / abs(float(bottom.sum()))
    half = float(special.stdtrit(count - 1, 1 - TAIL)) * error
    return Interval(low=value - half, mean=value, high=value + half)


def beta_parameters(mean: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return (alpha, beta) of Betas with these means and this many trials behind them."""
    inside = np.clip(mean, _SHARPEST, 1 - _SHARPEST)
    return inside * weight, (1 - inside) * weight


def wilson_interval(hits: int, trials: int, *, confidence: float = 0.9) -> Interval | None:
    """Return Wilson's interval of a share; None without trials.

    Raises:
        InvalidInput: hits is not 0 to trials, or the confidence is not inside 0 to 1.
    """
    if not 0 <= hits <= trials:
        raise InvalidInput(f"hits must be 0 to the {trials} trials, got {hits}")
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must be inside 0 to 1, got {confidence}")
    if trials == 0:
        return None
    z = float(special.ndtri((1 + confidence) / 2))
    share = hits / trials
    shrink = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / shrink
    half = z * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2) / shrink
    return Interval(
        low=max(0.0, min(share, middle - half)),
        mean=share,
        high=min(1.0, max(share, middle + half)),
    )


def more_often_p(hits: int, trials: int, control_hits: int, control_trials: int) -> float:
    """Return Fisher's exact one-sided p that the first share is not above the control's.

    1.0 where either side has no trials: nothing was shown.
    """
    if not trials or not control_trials:
        return 1.0
    table = [[hits, trials - hits], [control_hits, control_trials - control_hits]]
    return float(stats.fisher_exact(table, alternative="greater").pvalue)
