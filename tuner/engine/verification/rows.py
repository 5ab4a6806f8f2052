"""The sampling state of each sequence, and how the blocks of a batch lie in one target pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tuner.engine.errors import InvalidRequest
from tuner.engine.request import SamplingParams
from tuner.engine.verification.drawing import NO_TOKEN, new_generator
from tuner.engine.verification.penalties import Floats, Ints, PenaltyState

_RANGES = {
    "temperature": (0.0, math.inf),
    "top_k": (0.0, math.inf),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (1e-6, math.inf),
    "presence_penalty": (-math.inf, math.inf),
    "frequency_penalty": (-math.inf, math.inf),
    "min_tokens": (0.0, math.inf),
}
"""Least and most of each parameter; none may be infinite or NaN."""

BAN_BIAS = -100.0
"""A logit bias at or below this makes a token impossible at any temperature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Which positions of a flat [N, V] belong to which row: row after row, back to back.

    A row's position 0 follows its tokens so far; position j follows its j-th drafted token, and in
    a tree the ancestors of that token.

    Attributes:
        draft_tokens: [B, K] int64 on the CPU; -1 pads.
        drafts: the drafted tokens of each row, without padding.
        parents: of each row's tree, as in `Draft.parents`; None for a chain.
        starts: first position of each row.
    """

    draft_tokens: Tensor
    drafts: tuple[tuple[int, ...], ...]
    parents: tuple[tuple[int, ...] | None, ...]
    starts: tuple[int, ...]

    @classmethod
    def from_drafts(
        cls,
        drafts: Sequence[Sequence[int]],
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> Block:
        """Lay out one block a row; a row without a draft has one position.

        Args:
            drafts: tokens of each row.
            parents: of each row's tree, None for a chain; None where all are chains.
        """
        trees = parents if parents is not None else [None] * len(drafts)
        width = max((len(draft) for draft in drafts), default=0)
        padded = [[*draft, *[NO_TOKEN] * (width - len(draft))] for draft in drafts]
        ends = np.cumsum([0, *(len(draft) + 1 for draft in drafts)]).tolist()
        return cls(
            draft_tokens=torch.tensor(padded, dtype=torch.int64).reshape(len(drafts), width),
            drafts=tuple(tuple(draft) for draft in drafts),
            parents=tuple(None if tree is None else tuple(tree) for tree in trees),
            starts=tuple(ends[:-1]),
        )

    @property
    def num_positions(self) -> int:
        """N, positions of all rows together."""
        return sum(len(draft) + 1 for draft in self.drafts)

    def positions(self, row: int) -> range:
        """Return the flat positions of one row."""
        return range(self.starts[row], self.starts[row] + len(self.drafts[row]) + 1)

    def parents_of(self, row: int) -> Sequence[int]:
        """Return the parents of one row's draft tokens, those of a chain too."""
        tree = self.parents[row]
        return range(-1, len(self.drafts[row]) - 1) if tree is None else tree

    def depths(self, row: int) -> Sequence[int]:
        """Return how many drafted tokens stand before each position of one row."""
        if self.parents[row] is None:
            return range(len(self.drafts[row]) + 1)
        depths = [0]
        for parent in self.parents_of(row):
            depths.append(depths[parent + 1] + 1)
        return depths


class RowSampler:
    """Sampling state of one sequence; `commit` moves it on.

    Attributes:
        params: how its tokens are chosen.
        generator: source of all its random numbers, on the CPU.
        end_ids: token ids that end the answer, ascending.
        bias_ids: [U] biased token ids.
        bias_values: [U] what is added to their logits; -inf for a ban.
        penalties: token counts; None where no penalty is set.
        num_generated: output tokens so far.
    """

    __slots__ = (
        "bias_ids",
        "bias_values",
        "end_ids",
        "generator",
        "num_generated",
        "params",
        "penalties",
    )

    def __init__(
        self,
        params: SamplingParams,
        *,
        prompt_ids: Sequence[int],
        eos_ids: Sequence[int] = (),
        vocab_size: int,
    ) -> None:
        """Start a sequence.

        Args:
            params: how its tokens are chosen.
            prompt_ids: counted by the repetition penalty.
            eos_ids: the model's own end tokens.
            vocab_size: V.

        Raises:
            InvalidRequest: a parameter is out of range, or a biased token or a stop token is not in
                the vocabulary.
        """
        _require_ranges(params)
        _require_known(params.logit_bias, vocab_size, "logit_bias")
        _require_known(params.stop_token_ids, vocab_size, "stop_token_ids")
        eos = () if params.ignore_eos else tuple(eos_ids)
        self.params = params
        self.generator = new_generator(params.seed)
        self.end_ids = tuple(sorted({*params.stop_token_ids, *eos}))
        self.bias_ids: Ints = np.array(list(params.logit_bias), dtype=np.int64)
        biases = (-np.inf if bias <= BAN_BIAS else bias for bias in params.logit_bias.values())
        self.bias_values: Floats = np.array(list(biases), dtype=np.float32)
        self.penalties = PenaltyState(params, prompt_ids) if params.has_penalties else None
        self.num_generated = 0

    @property
    def num_endless(self) -> int:
        """Output tokens still to come before the answer may end."""
        return max(0, self.params.min_tokens - self.num_generated) if self.end_ids else 0

    def commit(self, tokens: Sequence[int]) -> None:
        """Count tokens that were delivered."""
        self.num_generated += len(tokens)
        if self.penalties is not None:
            self.penalties.add(tokens)


def _require_known(token_ids: Iterable[int], vocab_size: int, param: str) -> None:
    for token in token_ids:
        if not 0 <= token < vocab_size:
            raise InvalidRequest(
                f"{param} names token {token}, but token ids are 0 to {vocab_size - 1}",
                param=param,
            )


def _require_ranges(params: SamplingParams) -> None:
    for param, (least, most) in _RANGES.items():
        value: float = getattr(params, param)
        if not (math.isfinite(value) and least <= value <= most):
            raise InvalidRequest(
                f"{param} is {value}; give a finite number from {least:g} to {most:g}", param=param
            )
    for token, bias in params.logit_bias.items():
        if math.isnan(bias) or bias == math.inf:
            raise InvalidRequest(
                f"logit_bias of token {token} is {bias}; give a finite number", param="logit_bias"
            )
