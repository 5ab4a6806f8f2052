"""Medusa heads: each guesses a token further ahead, all from the target's last final state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional

from tuner.engine.model.heads.base import HeadTarget
from tuner.engine.model.linear import FrozenLinear
from tuner.engine.model.slots import FINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaWeights:
    """One head.

    Attributes:
        blocks: weight [H, H] and bias [H] or None of each residual block.
        turn: [H, H] before the target's output rows; None for none.
        rows: [reduced V, H] output rows of its own; None for the target's.
    """

    blocks: Sequence[tuple[Tensor, Tensor | None]]
    turn: Tensor | None = None
    rows: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _Head:
    blocks: list[FrozenLinear]
    turn: FrozenLinear | None
    output: FrozenLinear


class MedusaHeads:
    """Residual blocks x + SiLU(linear x), then output rows, a head.

    Source: arXiv:2401.10774, section 2.1.

    Attributes:
        num_heads: tokens it can guess ahead.
        taps: which states of the target it reads.
        vocab: [reduced V] int64 ids behind its logits, ascending; None for all.
    """

    taps = (FINAL,)

    def __init__(
        self, heads: Sequence[MedusaWeights], target: HeadTarget, *, vocab: Tensor | None
    ) -> None:
        """Take over the weights.

        Args:
            heads: the first guesses the token after the last committed one.
            target: gives the output rows that heads do not have.
            vocab: [reduced V] int64 ids they score; None for all.
        """
        self.num_heads = len(heads)
        self.vocab = vocab
        self._dtype = target.dtype
        self._shares_rows = all(weights.rows is None for weights in heads)
        output = cache(partial(target.output, vocab))
        self._heads = [_head(weights, target, output(weights.rows)) for weights in heads]

    def logits(self, features: Tensor, num_heads: int) -> Tensor:
        """Return logits [num_heads, B, reduced V] of the first heads, of final states [B, H]."""
        heads = self._heads[:num_heads]
        states = [_ahead(head, features.to(self._dtype)) for head in heads]
        if self._shares_rows:
            return heads[0].output(torch.cat(states)).view(num_heads, len(features), -1)
        return torch.stack([head.output(state) for head, state in zip(heads, states, strict=True)])


def _head(weights: MedusaWeights, target: HeadTarget, output: FrozenLinear) -> _Head:
    return _Head(
        blocks=[target.linear(weight, bias) for weight, bias in weights.blocks],
        turn=None if weights.turn is None else target.linear(weights.turn),
        output=output,
    )


def _ahead(head: _Head, hidden: Tensor) -> Tensor:
    """Return what meets the output rows, [B, H]."""
    for block in head.blocks:
        hidden = hidden + functional.silu(block(hidden))
    return hidden if head.turn is None else head.turn(hidden)
