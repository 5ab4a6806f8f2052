"""Parts of a batch that are verified alike, each handing its rows to one rule.

Chains and trees may lie side by side; a part without a tree takes the rule's way for chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tuner.engine.request import SamplingParams
from tuner.engine.verification.rows import Block, RowSampler
from tuner.engine.verification.sampling import most_likely, target_probs
from tuner.engine.verification.trees import Trees
from tuner.engine.verification.typical import verify_typical
from tuner.engine.verification.verify import (
    Verified,
    verify_chain,
    verify_greedy,
    verify_token_match,
)
from tuner.engine.verification.verify_tree import (
    verify_tree,
    verify_tree_greedy,
    verify_tree_match,
)


class Part(Protocol):
    """Some rows of a batch and how they are verified.

    Attributes:
        rows: their numbers in the batch.
    """

    @property
    def rows(self) -> tuple[int, ...]:
        """Row numbers in the batch."""

    def verify(self, logits: Tensor, block: Block, samplers: Sequence[RowSampler]) -> Verified:
        """Verify these rows.

        Args:
            logits: [N, V] of the whole batch, after `edit_logits`.
            block: of the whole batch.
            samplers: of the whole batch.
        """


@dataclass(frozen=True, slots=True)
class GreedyPart:
    """Rows that take the most likely token."""

    rows: tuple[int, ...]

    def verify(self, logits: Tensor, block: Block, samplers: Sequence[RowSampler]) -> Verified:
        """Compare with the likeliest tokens."""
        del samplers
        tokens = most_likely(_at(logits, block, self.rows))
        width = max(len(block.drafts[row]) for row in self.rows)
        offsets = torch.arange(width + 1, device=logits.device)
        starts = _starts(block, self.rows, logits.device)
        argmax = tokens[(starts.unsqueeze(1) + offsets).clamp_max(len(tokens) - 1)]
        if _has_tree(block, self.rows):
            return verify_tree_greedy(_trees(block, self.rows, logits.device), argmax)
        return verify_greedy(_drafts(block, self.rows, logits.device), argmax)


@dataclass(frozen=True, slots=True)
class MatchPart:
    """Sampled rows that draw from the target and keep what equals the draft."""

    rows: tuple[int, ...]

    def verify(self, logits: Tensor, block: Block, samplers: Sequence[RowSampler]) -> Verified:
        """Draw and compare."""
        generators = _generators(samplers, self.rows)
        if _has_tree(block, self.rows):
            target = _BatchTarget.of(logits, block, samplers, self.rows)
            return verify_tree_match(_trees(block, self.rows, logits.device), target, generators)
        return verify_token_match(
            _drafts(block, self.rows, logits.device),
            _probs(logits, block, samplers, self.rows),
            generators,
            starts=_starts(block, self.rows, logits.device),
        )


@dataclass(frozen=True, slots=True)
class ChainPart:
    """Sampled chains under the rejection rule that came from one drafter."""

    rows: tuple[int, ...]
    probs: Tensor | None
    vocab: Tensor | None

    def verify(self, logits: Tensor, block: Block, samplers: Sequence[RowSampler]) -> Verified:
        """Put each chain to the rejection rule."""
        draft_tokens = _drafts(block, self.rows, logits.device)
        return verify_chain(
            draft_tokens,
            None if self.probs is None else self.probs[:, : draft_tokens.shape[1]],
            _probs(logits, block, samplers, self.rows),
            _generators(samplers, self.rows),
            draft_vocab=self.vocab,
            starts=_starts(block, self.rows, logits.device),
        )


@dataclass(frozen=True, slots=True)
class TreePart:
    """Sampled trees under the rejection rule that came from one drafter."""

    rows: tuple[int, ...]
    probs: Tensor
    vocab: Tensor | None

    def verify(self, logits: Tensor, block: Block, samplers: Sequence[RowSampler]) -> Verified:
        """Put the children of each token to the rejection rule in turn."""
        trees = _trees(block, self.rows, logits.device)
        return verify_tree(
            trees,
            _BatchTarget.of(logits, block, samplers, self.rows),
            _generators(samplers, self.rows),
            draft_probs=self.probs[:, : trees.draft_tokens.shape[1]],
            draft_vocab=self.vocab,
        )


@dataclass(frozen=True, slots=True)
class TypicalPart:
    """Sampled rows under typical acceptance."""

    rows: tuple[int, ...]

    def verify(self, logits: Tensor, block: Block, samplers: Sequence[RowSampler]) -> Verified:
        """Keep what is typical."""
        return verify_typical(
            _trees(block, self.rows, logits.device),
            _probs(logits, block, samplers, self.rows),
            _starts(block, self.rows, logits.device),
            _generators(samplers, self.rows),
        )


@dataclass(frozen=True, slots=True)
class _BatchTarget:
    """The target of some rows, its distributions made from the batch's logits when asked for."""

    logits: Tensor
    starts: Tensor
    params: tuple[SamplingParams, ...]

    @classmethod
    def of(
        cls, logits: Tensor, block: Block, samplers: Sequence[RowSampler], rows: Sequence[int]
    ) -> _BatchTarget:
        starts = torch.tensor([block.starts[row] for row in rows], device=logits.device)
        return cls(logits, starts, tuple(samplers[row].params for row in rows))

    @property
    def vocab_size(self) -> int:
        return self.logits.shape[1]

    def at(self, rows: Tensor, positions: Tensor) -> Tensor:
        params = [self.params[row] for row in rows.tolist()]
        return target_probs(self.logits[self.starts[rows] + positions], params)


def _has_tree(block: Block, rows: Sequence[int]) -> bool:
    return any(block.parents[row] is not None for row in rows)


def _trees(block: Block, rows: Sequence[int], device: torch.device) -> Trees:
    drafts = [block.drafts[row] for row in rows]
    return Trees.of(drafts, [block.parents[row] for row in rows], device)


def _generators(samplers: Sequence[RowSampler], rows: Sequence[int]) -> list[torch.Generator]:
    return [samplers[row].generator for row in rows]


def _at(logits: Tensor, block: Block, rows: Sequence[int]) -> Tensor:
    """Return the logits of some rows in their order, without a copy where that is all of them."""
    places = [place for row in rows for place in block.positions(row)]
    if places == list(range(len(logits))):
        return logits
    return logits[torch.tensor(places, device=logits.device)]


def _probs(
    logits: Tensor, block: Block, samplers: Sequence[RowSampler], rows: Sequence[int]
) -> Tensor:
    params = [samplers[row].params for row in rows for _ in block.positions(row)]
    return target_probs(_at(logits, block, rows), params)


def _drafts(block: Block, rows: Sequence[int], device: torch.device) -> Tensor:
    """Return the drafts of some rows, [R, longest of them]."""
    width = max(len(block.drafts[row]) for row in rows)
    return block.draft_tokens[list(rows), :width].to(device)


def _starts(block: Block, rows: Sequence[int], device: torch.device) -> Tensor:
    """Return where the blocks of some rows begin among the positions of `_at`, [R]."""
    lengths = [len(block.drafts[row]) + 1 for row in rows]
    return torch.tensor([0, *lengths[:-1]], device=device).cumsum(0)
