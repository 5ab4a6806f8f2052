"""An estimate with its uncertainty, as all records of the policy hold it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its 90 % interval."""

    low: float
    mean: float
    high: float

    @classmethod
    def certain(cls, value: float) -> Interval:
        """Return what has no uncertainty, or none that is known."""
        return cls(low=value, mean=value, high=value)

    def to_dict(self) -> dict[str, float]:
        """Return the JSON form."""
        return {"low": self.low, "mean": self.mean, "high": self.high}

    @property
    def minus_one(self) -> Interval:
        """A ratio as a change: 1.10 becomes 0.10."""
        return Interval(low=self.low - 1, mean=self.mean - 1, high=self.high - 1)
