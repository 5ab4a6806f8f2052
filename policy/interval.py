"""An estimate with its uncertainty, as all records of the policy hold it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its 90 % interval."""

    low: float
    mean: float
    high: float
