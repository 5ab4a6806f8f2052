"""One trainable layer applied again and again to its own output: what EAGLE-3 and MTP share.

Let a sequence be t_0 t_1 ... with target states f_0 f_1 ... . Entry i reads the state of t_i and
the embedding of t_{i+1}, the root, and predicts t_{i+2} at depth 0. At depth d it reads its own
output of depth d - 1 and the embedding of t_{i+1+d}, stands d places further, and predicts
t_{i+2+d}. It sees the entries of depth 0 up to i, made of the target's own states, and its own
entries of depths 1 to d: exactly what a draft sees when it leaves the committed text after t_{i+1}.

Source: training-time test, arXiv:2503.01840, section 3.2.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from tuner.engine.training.batching import Batch
from tuner.engine.training.branches import Branches
from tuner.engine.training.head import DraftHead, Score
from tuner.engine.training.layers import Heads


class UnrolledHead(DraftHead):
    """A head whose layer reads the target's states first, then its own output."""

    @abstractmethod
    def first_hidden(self, states: Tensor) -> Tensor:
        """Return what the layer reads at depth 0, [B, T, H], of states [B, T, 4, H]."""

    @abstractmethod
    def enter(self, embedded: Tensor, hidden: Tensor, positions: Tensor) -> tuple[Heads, Tensor]:
        """Return queries, keys, values and the residual [B, T, H] of one depth."""

    @abstractmethod
    def leave(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """Return the layer's output [B, T, H], fed back at the next depth."""

    @abstractmethod
    def scored(self, hidden: Tensor) -> Tensor:
        """Return what meets the output rows, of the layer's output."""

    def forward(self, batch: Batch, score: Score, depths: int) -> None:
        """Predict every known token at each depth; only drafts that `score` lets go on cost."""
        tokens, width = batch.tokens, batch.tokens.shape[1]
        first = self.first_hidden(batch.target_states())[:, :-1]
        trunk, residual = self.enter(self.embed(tokens[:, 1:]), first, torch.arange(width - 1))
        hidden = self.leave(residual, trunk.attend_causally())
        branches = Branches.from_trunk(hidden, (trunk,))
        for depth in range(depths):
            if depth > 0:
                branches = self._deepened(branches, trunk, tokens, depth)
            goes_on = branches.scored(batch, score, depth, 2, self.scored)
            if not bool(goes_on.any()):
                return
            branches = branches.chosen(goes_on)

    def _deepened(self, branches: Branches, trunk: Heads, tokens: Tensor, depth: int) -> Branches:
        """Let each branch read its own output and the next token."""
        places = branches.leave + depth
        roots = tokens.gather(1, (places + 1).clamp(max=tokens.shape[1] - 1))
        heads, residual = self.enter(self.embed(roots), branches.hidden, places)
        mixed, grown = branches.attend(0, heads, trunk)
        return replace(grown, hidden=self.leave(residual, mixed))
