"""Drafted trees of many rows as tensors, and the ways along them.

A row's position 0 follows its tokens so far, position i + 1 follows its draft token i. A chain is
the tree whose every token follows the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from tuner.engine.verification.drawing import NO_TOKEN
from tuner.engine.verification.shapes import ShapeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A way from the root of each of R rows' trees.

    Attributes:
        nodes: [R, T] int64, the draft tokens along it; what stands beyond `length` means nothing.
        length: [R] int64.
        end: [R] int64, the position it leads to.
    """

    nodes: Tensor
    length: Tensor
    end: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Trees of R rows with T draft tokens at most, W children of one position at most.

    Of siblings that are the same token only the first is ever followed.

    Attributes:
        draft_tokens: [R, T] int64; -1 pads.
        follows: [R, T] int64, the position that each draft token follows; 0 pads.
        depths: [R, T] int64, draft tokens from the root to each, itself included; 0 pads.
        children: [R, T + 1, W] int64, which draft tokens follow each position, in the drafter's
            order; -1 pads.
        num_drafted: [R] int64.
    """

    draft_tokens: Tensor
    follows: Tensor
    depths: Tensor
    children: Tensor
    num_drafted: Tensor

    @classmethod
    def of(
        cls,
        drafts: Sequence[Sequence[int]],
        parents: Sequence[Sequence[int] | None],
        device: torch.device | None = None,
    ) -> Trees:
        """Lay out the trees of some rows.

        Args:
            drafts: draft tokens of each row.
            parents: of each row, as in `Draft.parents`; None for a chain.
            device: where the tensors lie.

        Raises:
            ShapeError: a parent does not stand before its child.
        """
        layouts = [
            _lay_out(tuple(range(-1, len(draft) - 1) if tree is None else tree))
            for draft, tree in zip(drafts, parents, strict=True)
        ]
        width = max((len(draft) for draft in drafts), default=0)
        shape = (len(drafts), width)
        num_ranks = max((layout.num_ranks for layout in layouts), default=1)
        tokens = np.full(shape, NO_TOKEN)
        follows, depths = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        children = np.full((len(drafts), width + 1, num_ranks), NO_TOKEN)
        for row, (draft, layout) in enumerate(zip(drafts, layouts, strict=True)):
            count = len(draft)
            tokens[row, :count] = draft
            follows[row, :count] = layout.follows
            depths[row, :count] = layout.depths
            children[row, layout.follows, layout.ranks] = np.arange(count)
        return cls(
            draft_tokens=torch.from_numpy(tokens).to(device),
            follows=torch.from_numpy(follows).to(device),
            depths=torch.from_numpy(depths).to(device),
            children=torch.from_numpy(children).to(device),
            num_drafted=torch.tensor([len(draft) for draft in drafts], device=device),
        )

    @classmethod
    def alike(cls, draft_tokens: Tensor, parents: Sequence[int]) -> Trees:
        """Lay out many rows of one shape.

        Args:
            draft_tokens: [R, T] int64.
            parents: T indexes, as in `Draft.parents`.
        """
        one = cls.of([parents], [parents], draft_tokens.device)
        num_rows = len(draft_tokens)
        return cls(
            draft_tokens=draft_tokens,
            follows=one.follows.expand(num_rows, -1),
            depths=one.depths.expand(num_rows, -1),
            children=one.children.expand(num_rows, -1, -1),
            num_drafted=one.num_drafted.expand(num_rows),
        )

    @property
    def is_empty(self) -> bool:
        """True where no row has a draft."""
        return not self.draft_tokens.numel()

    @property
    def num_columns(self) -> int:
        """T + 1, positions of the largest tree."""
        return self.children.shape[1]

    def child_with(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """Return which draft token follows each position and is the given one.

        Args:
            rows: [A] int64.
            positions: [A] int64.
            tokens: [A] int64; -1 is found nowhere.

        Returns:
            [A] int64; -1 where there is none.
        """
        if self.is_empty:
            return torch.full_like(rows, NO_TOKEN)
        children = self.children[rows, positions]
        found = self.draft_tokens[rows.unsqueeze(1), children.clamp_min(0)] == tokens.unsqueeze(1)
        found &= children >= 0
        first = found.to(torch.uint8).argmax(1, keepdim=True)
        return children.gather(1, first).squeeze(1).where(found.any(1), NO_TOKEN)

    def longest_path(self, probs: Tensor) -> Path:
        """Return the longest path along tokens that are kept, of equal ones the likeliest.

        Args:
            probs: [R, T] float64, how likely each token is after its own parent; 0 for one that is
                not kept, and for padding.
        """
        if self.is_empty:
            none = torch.zeros_like(self.num_drafted)
            return Path(nodes=self.draft_tokens, length=none, end=none)
        num_levels = int(self.depths.max())
        reach = probs
        above = (self.follows - 1).clamp_min(0)
        for _ in range(num_levels - 1):
            reach = probs * torch.where(self.follows > 0, reach.gather(1, above), 1.0)
        reached = self.depths * (reach > 0)
        length = reached.amax(1)
        nodes = torch.zeros_like(self.draft_tokens)
        # A product of probabilities is at most 1: half of it decides among equal depths only.
        node = (reached + reach / 2).argmax(1)
        end = torch.where(length > 0, node + 1, 0)
        rows = torch.arange(len(node), device=node.device)
        for level in range(num_levels - 1, -1, -1):
            is_on = level < length
            nodes[is_on, level] = node[is_on]
            node = torch.where(is_on, self.follows[rows, node] - 1, node)
        return Path(nodes=nodes, length=length, end=end)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where one row's draft tokens stand: what each follows, how deep, which sibling it is."""

    follows: tuple[int, ...]
    depths: tuple[int, ...]
    ranks: tuple[int, ...]

    @property
    def num_ranks(self) -> int:
        return max(self.ranks, default=0) + 1


@lru_cache(maxsize=1024)
def _lay_out(parents: tuple[int, ...]) -> _Layout:
    depths: list[int] = []
    ranks: list[int] = []
    num_children = [0] * (len(parents) + 1)
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ShapeError(
                f"draft token {node} has parent {parent}: a parent stands before its child, "
                "-1 is the last committed token"
            )
        depths.append(1 if parent < 0 else depths[parent] + 1)
        ranks.append(num_children[parent + 1])
        num_children[parent + 1] += 1
    return _Layout(tuple(parent + 1 for parent in parents), tuple(depths), tuple(ranks))
