"""How fast the engine answers on this machine, and how much shadow work fits into a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.demo.client import ClientTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Time for a piece of shadow work.

    Attributes:
        seconds: the time.
        answers: answers that one prompt costs, one after the other.
        tokens: tokens of an answer.
        fewest: prompts asked even where they do not fit.
        most: prompts that are enough.
    """

    seconds: float
    answers: float
    tokens: int
    fewest: int
    most: int

    def prompts(self, pace: float | None) -> int:
        """Return how many prompts fit at a pace in seconds a token; the fewest where unknown."""
        if pace is None:
            return self.fewest
        return max(
            self.fewest, min(self.most, int(self.seconds / (self.answers * self.tokens * pace)))
        )


def pace_s(traces: Sequence[ClientTrace]) -> float | None:
    """Return the seconds a token that the fastest quarter of answers took; None without answers."""
    paces = sorted(
        trace.duration_s / trace.completion_tokens for trace in traces if trace.completion_tokens
    )
    return paces[(len(paces) - 1) // 4] if paces else None
