"""The draft model: a few decoder layers that read tokens only.

Forward, with root t_i and E the target's embedding:

    h = E t_0 .. E t_i, then Llama layers with rotary places, causal
    logits = R norm(h_i)                                  [D], R = output rows of the target

It predicts t_{i+1}; at later depths it has read its own guesses, so that every depth is the same
prediction in training. The file: `layers.{n}.*` and `norm.weight` in Hugging Face's Llama names
without `model.`, and `draft_vocab`.

Source: arXiv:2211.17192, arXiv:2302.01318.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self, cast

import torch
from torch import Tensor, nn

from tuner.engine.training.batching import Batch
from tuner.engine.training.head import DraftHead, Score
from tuner.engine.training.layers import DecoderLayer
from tuner.engine.training.target import Target


class DraftModel(DraftHead):
    """A few decoder layers between the target's own embedding and some of its own output rows."""

    method: ClassVar[str] = "draft_model"
    title: ClassVar[str] = "a draft model"
    trained_depths: ClassVar[int] = 1
    needs_states: ClassVar[bool] = False

    def __init__(self, target: Target, draft_vocab: Tensor, num_layers: int = 2) -> None:
        """Build an untrained draft model.

        Args:
            target: gives sizes, embedding and output rows.
            draft_vocab: [D] int32, ascending token ids the draft may propose.
            num_layers: decoder layers.
        """
        super().__init__(target, draft_vocab)
        self.layers = nn.ModuleList(DecoderLayer(target.shape) for _ in range(num_layers))
        self.norm = nn.RMSNorm(target.shape.hidden, eps=target.shape.rms_eps)

    @classmethod
    def sized(cls, target: Target, draft_vocab: Tensor, tensors: dict[str, Tensor]) -> Self:
        """Build a model with as many layers as the file holds."""
        numbers = [int(name.split(".")[1]) for name in tensors if name.startswith("layers.")]
        return cls(target, draft_vocab, 1 + max(numbers, default=0))

    def copy_layers(self, target: Target, sources: Sequence[int]) -> None:
        """Start from the target's layers `sources`, one a draft layer, and its final norm."""
        state = {"norm.weight": target.weights["norm.weight"]}
        for goal, source in enumerate(sources):
            prefix = f"layers.{source}."
            for name, tensor in target.weights.items():
                if name.startswith(prefix):
                    state[f"layers.{goal}.{name.removeprefix(prefix)}"] = tensor
        self.load_state_dict(state)

    def decoder_layers(self) -> list[DecoderLayer]:
        """Return the layers in order."""
        return cast("list[DecoderLayer]", list(self.layers))

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the final hidden states [B, T, H] of tokens [B, T] int64, causally masked."""
        hidden = self.embed(tokens)
        places = torch.arange(tokens.shape[1])
        for layer in self.decoder_layers():
            hidden = layer.finish(hidden, layer.heads(hidden, places).attend_causally())
        normed: Tensor = self.norm(hidden)
        return normed

    def forward(self, batch: Batch, score: Score, depths: int) -> None:
        """Predict every known token from those before it, the same at each depth."""
        rows, columns = batch.known_places()
        hidden = self.hidden(batch.tokens)[rows, columns - 1]
        for depth in range(depths):
            score(depth, hidden, rows, columns)
