"""Sizes of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Sizes fixed at start.

    Attributes:
        max_rows: sequences in the batch at most.
        max_context_tokens: prompt and answer of one sequence at most.
        queue_limit: requests that may wait.
        prefill_tokens: prompt tokens computed per step at most, over all rows.
    """

    max_rows: int = 32
    max_context_tokens: int = 1024
    queue_limit: int = 256
    prefill_tokens: int = 256

    @classmethod
    def of(
        cls, max_rows: int, max_context_tokens: int, queue_limit: int, prefill_tokens: int
    ) -> Self:
        """Return these sizes, in the order of the fields."""
        return cls(
            max_rows=max_rows,
            max_context_tokens=max_context_tokens,
            queue_limit=queue_limit,
            prefill_tokens=prefill_tokens,
        )
