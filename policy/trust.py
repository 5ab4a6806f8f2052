"""How far predictions have earned their intervals: a factor on their width, from the record."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from policy.outcome import Outcome

MIN_OUTCOMES = 3
"""Outcomes from which the record says anything."""

INSIDE_SHARE = 0.9
"""Share of outcomes that the widened intervals would have held."""

_MIN_WIDTH = 0.005


def error_scale(record: Sequence[Outcome]) -> float:
    """Return by how much predicted intervals are to be widened; 1 where they held.

    Each outcome's error is the log of measured over predicted, less what the measurement itself is
    unsure of, in half widths of the predicted interval. The factor is the 90 % quantile of these,
    at least 1, so that a single wild outcome among many does not decide.
    """
    if len(record) < MIN_OUTCOMES:
        return 1.0
    scores = [score for one in record if (score := _score(one)) is not None]
    if len(scores) < MIN_OUTCOMES:
        return 1.0
    return max(1.0, float(np.quantile(scores, INSIDE_SHARE)))


def _score(one: Outcome) -> float | None:
    """Return an error in half widths of its prediction; None where a figure is not above 0."""
    if min(one.predicted.low, one.realised.low) <= 0:
        return None
    error = abs(math.log(one.realised.mean / one.predicted.mean))
    unsure = math.log(one.realised.high / one.realised.low) / 2
    width = math.log(one.predicted.high / one.predicted.low) / 2
    return max(0.0, error - unsure) / max(width, _MIN_WIDTH)
