"""Decoder of the Llama family (RMSNorm, rotary positions, grouped queries, gated MLP) over slots.

One class serves target and draft models: the draft shares the target's embedding and may score a
reduced vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from tuner.engine.model.decoder import slots_for
from tuner.engine.model.layers import (
    DecoderLayer,
    LayerPass,
    LlamaShape,
    Norms,
    rms_norm,
    rotation_table,
    under,
)
from tuner.engine.model.linear import can_pack, frozen_linear
from tuner.engine.model.native import can_attend, native_kernels
from tuner.engine.model.passes import MaskKind, Pass
from tuner.engine.model.slots import FINAL, FeatureSlots, KvSlots


class LlamaDecoder:
    """A decoder with frozen weights.

    Attributes:
        shape: its sizes.
        embedding: [V, H].
        output_rows: [V or reduced V, H], what the final state is multiplied with.
        mask_kind: device, dtype and attention window.
        num_weights: weights that one pass reads, the embedding table left out.
    """

    def __init__(
        self,
        shape: LlamaShape,
        weights: Mapping[str, Tensor],
        *,
        embedding: Tensor,
        head: Tensor,
        is_packed: bool | None = None,
    ) -> None:
        """Take over the weights.

        Args:
            shape: sizes.
            weights: `layers.{i}.*` and `norm.weight`, in Hugging Face's Llama names.
            embedding: [V, H], of any dtype.
            head: output rows [V or reduced V, H]; its dtype is that of the activations.
            is_packed: prepack the weights; None decides by the device.
        """
        self.shape = shape
        self.embedding = embedding
        self.output_rows = head
        self.mask_kind = MaskKind(device=head.device, dtype=head.dtype, window=shape.window)
        packed = can_pack(embedding.device) if is_packed is None else is_packed
        by_layer = [under(weights, f"layers.{i}.") for i in range(shape.num_layers)]
        self._input_norms = [layer["input_layernorm.weight"] for layer in by_layer]
        self._layers = [DecoderLayer(shape, layer, is_packed=packed) for layer in by_layer]
        self._norm = weights["norm.weight"]
        used = [value for name, value in weights.items() if name.startswith(("layers.", "norm."))]
        self.num_weights = sum(value.numel() for value in used) + head.numel()
        self._head = frozen_linear(head, is_packed=packed)
        self._is_packed = packed
        self._rotation = rotation_table(shape, embedding.device)
        kernels = native_kernels(self._norm.device, self._norm.dtype, shape.hidden_size)
        self._norms: Norms = rms_norm if kernels is None else kernels.rms_norm

    def with_layers(
        self,
        num_layers: int,
        weights: Mapping[str, Tensor],
        vocab: Tensor,
        dtype: torch.dtype | None = None,
    ) -> LlamaDecoder:
        """Return a decoder with other layers, this one's embedding, and some of its output rows.

        Args:
            num_layers: its layers.
            weights: `layers.{i}.*` and `norm.weight`.
            vocab: [reduced V] int64 ids of the output rows it keeps.
            dtype: of its layers; None for this decoder's.
        """
        kind = self.mask_kind
        dtype = dtype or kind.dtype
        return LlamaDecoder(
            replace(self.shape, num_layers=num_layers),
            {name: value.to(kind.device, dtype) for name, value in weights.items()},
            embedding=self.embedding,
            head=self.output_rows[vocab.to(kind.device)].to(dtype),
            is_packed=self._is_packed,
        )

    @property
    def is_native(self) -> bool:
        """True where compiled kernels attend."""
        kind = self.mask_kind
        return can_attend(kind.device, kind.dtype, self.shape.head_dim)

    def new_slots(self, num_slots: int, max_context_tokens: int) -> KvSlots:
        """Allocate KV for this decoder."""
        return slots_for(self.shape, num_slots, max_context_tokens, self.mask_kind)

    def forward(self, batch: Pass, slots: KvSlots, features: FeatureSlots | None = None) -> Tensor:
        """Run the layers over a pass and write its KV, and the features' taps where asked for.

        Returns:
            [N, H] hidden states after the final norm.
        """
        return self.forward_from(self.embed(batch.token_ids), batch, slots, features)

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return the states [N, H] that the first layer reads for tokens [N]."""
        return functional.embedding(token_ids, self.embedding).to(self.mask_kind.dtype)

    def forward_from(
        self, hidden: Tensor, batch: Pass, slots: KvSlots, features: FeatureSlots | None = None
    ) -> Tensor:
        """Do what `forward` does, over given states [N, H] in place of embedded tokens."""
        work = LayerPass(batch, slots, self.shape, self._rotation)
        for number, (norm, layer) in enumerate(zip(self._input_norms, self._layers, strict=True)):
            if features is not None:
                features.write(number, batch.slots, batch.entries, hidden)
            hidden = layer(number, self._normed(hidden, norm), hidden, work)
        final = self._normed(hidden, self._norm)
        if features is not None:
            features.write(FINAL, batch.slots, batch.entries, final)
        return final

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [n, V or reduced V] of hidden states [n, H]."""
        return self._head(hidden)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return self._norms(hidden, weight, self.shape.norm_eps)
