"""PARD: a draft model that guesses all positions in one pass, by mask entries after the root.

Forward, with root t_i, E the target's embedding, m = mask_embedding, and K positions:

    h = E t_0 .. E t_i, m, m, ... (K - 1 times), at places 0 .. i + K - 1, then causal Llama layers
    logits_d = R norm(h_{i+d}) predict t_{i+1+d}, d = 0 .. K - 1      [D], R = the target's rows

The root's own entry guesses the first token, each mask the next one. Mask entries see the text and
the masks before them, never a guessed token; their keys and values are dropped after the pass. The
file is the draft model's with one tensor more: `mask_embedding` [H], which plays the part of the
public checkpoints' mask token. Training drops masks of drafts that are already wrong: the paper's
conditional drop, by the draft's own hits instead of a fixed share.

Source: arXiv:2504.18583, sections 3.1 and 3.2.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from tuner.engine.training.batching import Batch
from tuner.engine.training.branches import Branches
from tuner.engine.training.draft import DraftModel
from tuner.engine.training.head import Score, tensor_names
from tuner.engine.training.layers import Heads
from tuner.engine.training.target import Target


class PardModel(DraftModel):
    """A parallel draft model in its trainable form."""

    method: ClassVar[str] = "pard"
    title: ClassVar[str] = "a parallel draft model"
    max_depth: ClassVar[int | None] = 8
    trained_depths: ClassVar[int] = 8

    def __init__(self, target: Target, draft_vocab: Tensor, num_layers: int = 2) -> None:
        """Build an untrained model; see `DraftModel`."""
        super().__init__(target, draft_vocab, num_layers)
        self.mask_embedding = nn.Parameter(self.embedding.mean(0))

    def start_from(self, target: Target, path: Path) -> None:
        """Take over a trained parallel draft model, or the layers of a draft model."""
        if "mask_embedding" in tensor_names(path):
            super().start_from(target, path)
        else:
            self._take_over(DraftModel.load(target, path), path, is_whole=False)

    def forward(self, batch: Batch, score: Score, depths: int) -> None:
        """Predict every known token at each depth; only drafts that `score` lets go on cost."""
        hidden = self.embed(batch.tokens)
        places = torch.arange(batch.tokens.shape[1])
        trunks: list[Heads] = []
        for layer in self.decoder_layers():
            trunks.append(layer.heads(hidden, places))
            hidden = layer.finish(hidden, trunks[-1].attend_causally())
        branches = Branches.from_trunk(hidden, tuple(trunks))
        for depth in range(depths):
            if depth > 0:
                branches = self._masked(branches, trunks, depth)
            goes_on = branches.scored(batch, score, depth, 1, self.norm)
            if not bool(goes_on.any()):
                return
            branches = branches.chosen(goes_on)

    def _masked(self, branches: Branches, trunks: list[Heads], depth: int) -> Branches:
        """Add one mask entry to each branch."""
        hidden = self.mask_embedding.expand(*branches.leave.shape, -1)
        for number, layer in enumerate(self.decoder_layers()):
            heads = layer.heads(hidden, branches.leave + depth)
            mixed, branches = branches.attend(number, heads, trunks[number])
            hidden = layer.finish(hidden, mixed)
        return replace(branches, hidden=hidden)
