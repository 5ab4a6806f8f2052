"""EAGLE heads: one decoder layer that continues the target's own hidden states.

Key names are SafeAILab's (github.com/SafeAILab/EAGLE, eagle/model/cnets1.py and cnets.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tuner.engine.model.heads.base import HeadTarget
from tuner.engine.model.layers import DecoderLayer, LayerPass, LlamaShape, rms_norm, rotation_table
from tuner.engine.model.passes import Pass
from tuner.engine.model.slots import FINAL, KvSlots


class FeatureEagle:
    """EAGLE-1 and EAGLE-2: predicts the target's next final state, scored by the target's rows.

    With e the token's embedding and f the state before it: x = fc [e; f], one layer over x without
    a norm before attention, the layer's output is the next state. Variants norm e, x and what is
    scored.

    Source: arXiv:2401.15077, section 3.1; arXiv:2406.16858 changes the tree, not the head.
    """

    def __init__(
        self,
        shape: LlamaShape,
        weights: Mapping[str, Tensor],
        target: HeadTarget,
        *,
        vocab: Tensor | None = None,
    ) -> None:
        """Take over the weights.

        Args:
            shape: sizes of the layer.
            weights: `fc.weight` [H, 2H], `fc.bias` optional, `layers.0.*`, and where there are
                norms `embed_norm.weight`, `layers.0.input_layernorm.weight` and `norm.weight`.
            target: embedding and output rows.
            vocab: [reduced V] int64 ids it scores; None for all.
        """
        self.shape = shape
        self.taps: tuple[int, ...] = (FINAL,)
        self.dtype, self.device = target.dtype, target.device
        self.vocab = vocab
        self._target = target
        self._fc = target.linear(weights["fc.weight"], weights.get("fc.bias"))
        layer = _cast(weights, "layers.0.", target)
        self._layer = DecoderLayer(shape, layer, is_packed=target.is_packed)
        self._input_norm = layer.get("input_layernorm.weight")
        self._embed_norm = _cast(weights, "embed_norm.", target).get("weight")
        self._norm = _cast(weights, "norm.", target).get("weight")
        self._output = target.output(vocab)
        self._rotation = rotation_table(shape, target.device)

    def fuse(self, features: Tensor) -> Tensor:
        """Return the final states [N, H]."""
        return features[:, 0].to(self.dtype)

    def forward(self, batch: Pass, states: Tensor, slots: KvSlots, module: int) -> Tensor:
        """Compute a pass; see `RecurrentHead`."""
        embedded = self._normed(self._target.embed(batch.token_ids), self._embed_norm)
        joined = self._fc(torch.cat([embedded, states], dim=-1))
        work = LayerPass(batch, slots, self.shape, self._rotation)
        return self._layer(module, self._normed(joined, self._input_norm), joined, work)

    def logits(self, states: Tensor, module: int) -> Tensor:
        """Score states as the target scores its own."""
        del module
        return self._output(self._normed(states, self._norm))

    def _normed(self, hidden: Tensor, weight: Tensor | None) -> Tensor:
        return hidden if weight is None else rms_norm(hidden, weight, self.shape.norm_eps)


class FusedEagle:
    """EAGLE-3: predicts tokens, from low, middle and high states of the target.

    With e the token's embedding and f the three states before it: h = fc f, one layer whose
    attention reads [input_layernorm(e); hidden_norm(h)] and adds to h, its output g is fed back in
    place of h, and norm(g) is scored by rows of its own.

    Source: arXiv:2503.01840, section 3.1.
    """

    def __init__(
        self,
        shape: LlamaShape,
        weights: Mapping[str, Tensor],
        target: HeadTarget,
        *,
        taps: tuple[int, ...],
        vocab: Tensor | None,
        adds_to_normed: bool = False,
    ) -> None:
        """Take over the weights.

        Args:
            shape: sizes of the layer.
            weights: `fc.weight` [H, taps * H], `midlayer.*` with q, k and v over 2H, `norm.weight`,
                and `lm_head.weight` [reduced V, H] where the rows are not the target's.
            target: embedding and output rows.
            taps: which states of the target are fused.
            vocab: [reduced V] int64 ids it scores; None for all.
            adds_to_normed: attention adds to hidden_norm(h) in place of h, as vLLM's speculators
                call `norm_before_residual`.
        """
        self.shape = shape
        self.taps = taps
        self.dtype, self.device = target.dtype, target.device
        self.vocab = vocab
        self._target = target
        self._fc = target.linear(weights["fc.weight"])
        layer = _cast(weights, "midlayer.", target)
        self._layer = DecoderLayer(shape, layer, is_packed=target.is_packed)
        self._input_norm = layer["input_layernorm.weight"]
        self._hidden_norm = layer["hidden_norm.weight"]
        self._adds_to_normed = adds_to_normed
        self._norm = target.cast(weights["norm.weight"])
        self._output = target.output(vocab, weights.get("lm_head.weight"))
        self._rotation = rotation_table(shape, target.device)

    def fuse(self, features: Tensor) -> Tensor:
        """Return one state [N, H] for the taps [N, taps, H]."""
        return self._fc(features.flatten(1).to(self.dtype))

    def forward(self, batch: Pass, states: Tensor, slots: KvSlots, module: int) -> Tensor:
        """Compute a pass; see `RecurrentHead`."""
        eps = self.shape.norm_eps
        embedded = rms_norm(self._target.embed(batch.token_ids), self._input_norm, eps)
        normed = rms_norm(states, self._hidden_norm, eps)
        residual = normed if self._adds_to_normed else states
        work = LayerPass(batch, slots, self.shape, self._rotation)
        return self._layer(module, torch.cat([embedded, normed], dim=-1), residual, work)

    def logits(self, states: Tensor, module: int) -> Tensor:
        """Score states over the head's vocabulary."""
        del module
        return self._output(rms_norm(states, self._norm, self.shape.norm_eps))


def _cast(weights: Mapping[str, Tensor], prefix: str, target: HeadTarget) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): target.cast(value)
        for name, value in weights.items()
        if name.startswith(prefix)
    }
