"""Drafts that leave their sequences: where each left, and what it has made of itself so far.

Used by the heads that are trained on their own drafts (unroll.py, pard.py). A branch is entry i of
a row; it grows by one place a depth as long as the score lets it go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tuner.engine.training.batching import Batch
from tuner.engine.training.head import Score
from tuner.engine.training.layers import Heads, attend_branches


@dataclass(frozen=True, slots=True)
class OwnEntries:
    """Keys and values of the branches' own places in one layer, [B, KV heads, S, J, head dim]."""

    keys: Tensor
    values: Tensor

    @classmethod
    def none(cls, trunk: Heads) -> OwnEntries:
        """Return no entries yet, for as many branches as the trunk has places."""
        num_rows, num_kv, width, head_dim = trunk.key.shape
        nothing = trunk.key.new_empty(num_rows, num_kv, width, 0, head_dim)
        return cls(nothing, nothing)

    def grown(self, heads: Heads) -> OwnEntries:
        """Add one place to each branch."""
        return OwnEntries(
            torch.cat([self.keys, heads.key[:, :, :, None]], dim=3),
            torch.cat([self.values, heads.value[:, :, :, None]], dim=3),
        )

    def gathered(self, order: Tensor) -> OwnEntries:
        """Keep the branches at order [B, S']."""
        num_kv, num_own, head_dim = self.keys.shape[1], *self.keys.shape[3:]
        index = order[:, None, :, None, None].expand(-1, num_kv, -1, num_own, head_dim)
        return OwnEntries(self.keys.gather(2, index), self.values.gather(2, index))


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """The branches of a batch, packed to the left of each row.

    Attributes:
        leave: [B, S] int64, the last entry of the trunk that a branch sees.
        is_real: [B, S] bool, false where a row has fewer branches.
        hidden: [B, S, H], output of the newest place.
        own: entries of each layer.
    """

    leave: Tensor
    is_real: Tensor
    hidden: Tensor
    own: tuple[OwnEntries, ...]

    @classmethod
    def from_trunk(cls, hidden: Tensor, trunks: tuple[Heads, ...]) -> Branches:
        """Start one branch at each place of the trunk, whose outputs are hidden [B, T, H]."""
        leave = torch.arange(hidden.shape[1]).expand(len(hidden), -1)
        own = tuple(OwnEntries.none(trunk) for trunk in trunks)
        is_real = torch.ones_like(leave, dtype=torch.bool)
        return cls(leave=leave, is_real=is_real, hidden=hidden, own=own)

    def attend(self, layer: int, heads: Heads, trunk: Heads) -> tuple[Tensor, Branches]:
        """Add each branch's newest place to a layer's entries and let it attend.

        Returns:
            Mixed values [B, heads, S, head dim], and the branches with the new entries.
        """
        own = self.own[layer].grown(heads)
        mixed = attend_branches(heads.query, trunk, self.leave, own.keys, own.values)
        return mixed, replace(self, own=(*self.own[:layer], own, *self.own[layer + 1 :]))

    def chosen(self, goes_on: Tensor) -> Branches:
        """Keep the branches where goes_on [B, S] is true."""
        count = int(goes_on.sum(1).max())
        order = goes_on.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count]
        of_hidden = order[..., None].expand(-1, -1, self.hidden.shape[-1])
        return Branches(
            leave=self.leave.gather(1, order),
            is_real=goes_on.gather(1, order),
            hidden=self.hidden.gather(1, of_hidden),
            own=tuple(entries.gathered(order) for entries in self.own),
        )

    def scored(
        self,
        batch: Batch,
        score: Score,
        depth: int,
        first_column: int,
        scored: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Hand over the branches whose next token is known.

        Args:
            batch: the sequences.
            score: takes the predictions.
            depth: of the newest place.
            first_column: from the entry a branch left at to the token it predicts at depth 0.
            scored: turns outputs [N, H] into what meets the output rows.

        Returns:
            [B, S] bool, branches that go on.
        """
        columns = self.leave + first_column + depth
        last = batch.tokens.shape[1] - 1
        is_known = batch.is_known.gather(1, columns.clamp(max=last)) & (columns <= last)
        rows, slots = (is_known & self.is_real).nonzero(as_tuple=True)
        goes_on = torch.zeros_like(self.is_real)
        if len(rows) > 0:
            hidden = scored(self.hidden[rows, slots])
            goes_on[rows, slots] = score(depth, hidden, rows, columns[rows, slots])
        return goes_on
