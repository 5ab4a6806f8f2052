"""Ratios with 90 % intervals from rounds: Student's t on logarithms, scatter pooled over groups.

A group (an arm at a level, a route at a load) has only a few rounds, so its own scatter would be
known badly. Groups share one scatter instead; its degrees of freedom are their rounds less one
each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy import special

from policy.types import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One round's figure.

    Attributes:
        log: natural logarithm of the figure or ratio.
        weight: inverse variance, up to a factor that all readings share.
    """

    log: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """How much readings of one group differ.

    Attributes:
        variance: of a reading of weight 1.
        freedom: degrees of freedom.
    """

    variance: float
    freedom: int


def pooled_scatter(groups: Iterable[Sequence[Reading]]) -> Scatter | None:
    """Return the scatter within groups; None where no group has two readings."""
    squares, freedom = 0.0, 0
    for group in groups:
        if group:
            mean = _mean(group)
            squares += sum(one.weight * (one.log - mean) ** 2 for one in group)
            freedom += len(group) - 1
    return Scatter(variance=squares / freedom, freedom=freedom) if freedom else None


def interval_of(group: Sequence[Reading], scatter: Scatter) -> Interval:
    """Return the group's weighted geometric mean with its 90 % interval."""
    mean = _mean(group)
    error = math.sqrt(scatter.variance / sum(one.weight for one in group))
    reach = float(special.stdtrit(scatter.freedom, 0.95)) * error
    return Interval(low=math.exp(mean - reach), mean=math.exp(mean), high=math.exp(mean + reach))


def _mean(group: Sequence[Reading]) -> float:
    return sum(one.weight * one.log for one in group) / sum(one.weight for one in group)
