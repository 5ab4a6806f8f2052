"""Token counts of one sequence and what they do to its logits at every position of a block.

Counts are sparse and grow with the sequence; nothing of vocabulary size is rebuilt in a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.engine.request import SamplingParams

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltyBlock:
    """Penalties of one row's block of P positions on the U tokens that have any.

    Attributes:
        token_ids: [U] int64, distinct.
        divisors: [P, U] float32, repetition penalty where the token was seen before, else 1.
        deductions: [P, U] float32, what frequency and presence subtract.
    """

    token_ids: Ints
    divisors: Floats
    deductions: Floats


class PenaltyState:
    """Counts of the tokens of one sequence, moved on by `add` as tokens are delivered."""

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int]) -> None:
        self._repetition = params.repetition_penalty
        self._presence = params.presence_penalty
        self._frequency = params.frequency_penalty
        self._slot: dict[int, int] = {}
        self._token_ids = np.zeros(64, dtype=np.int64)
        self._counts = np.zeros(64, dtype=np.float32)
        if self._repetition != 1:
            for token in prompt_ids:
                self._slot_of(token)

    def add(self, tokens: Sequence[int]) -> None:
        """Count tokens of the output."""
        for token in tokens:
            slot = self._slot_of(token)
            self._counts[slot] += 1

    def block(self, drafted: Sequence[int], parents: Sequence[int]) -> PenaltyBlock:
        """Return the penalties before the drafted tokens, and after each of them.

        Position 0 counts the sequence so far; position j + 1 counts drafted token j and what its
        parent's position does, as if these tokens had been delivered one by one.

        Args:
            drafted: drafted tokens.
            parents: index of each one's parent, -1 for the sequence so far; j - 1 in a chain.
        """
        num_known = len(self._slot)
        fresh = [token for token in dict.fromkeys(drafted) if token not in self._slot]
        column_of = {token: num_known + i for i, token in enumerate(fresh)}
        token_ids = np.concatenate([self._token_ids[:num_known], np.asarray(fresh, dtype=np.int64)])
        counts = np.zeros((len(drafted) + 1, len(token_ids)), dtype=np.float32)
        counts[0, :num_known] = self._counts[:num_known]
        is_seen = np.zeros(counts.shape, dtype=np.bool_)
        is_seen[0, :num_known] = True
        for position, (token, parent) in enumerate(zip(drafted, parents, strict=True), start=1):
            column = self._slot[token] if token in self._slot else column_of[token]
            counts[position] = counts[parent + 1]
            counts[position, column] += 1
            is_seen[position] = is_seen[parent + 1]
            is_seen[position, column] = True
        return PenaltyBlock(
            token_ids=token_ids,
            divisors=np.where(is_seen, self._repetition, 1).astype(np.float32),
            deductions=(self._frequency * counts + self._presence * (counts > 0)).astype(
                np.float32
            ),
        )

    def _slot_of(self, token: int) -> int:
        slot = self._slot.setdefault(token, len(self._slot))
        if slot == len(self._token_ids):
            self._token_ids = np.concatenate([self._token_ids, np.zeros_like(self._token_ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._token_ids[slot] = token
        return slot
