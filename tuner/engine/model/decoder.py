"""What the core and the drafters need of a model: a pass over KV slots, and logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from tuner.engine.model.passes import MaskKind, Pass
from tuner.engine.model.slots import FeatureSlots, KvSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """Sizes of a decoder.

    Attributes:
        num_layers: decoder layers (L).
        hidden_size: residual width (H).
        num_heads: query heads.
        num_kv_heads: key and value heads.
        head_dim: width of a head.
        vocab_size: tokens (V).
        max_positions: positions the model was trained for.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int


class Decoder(Protocol):
    """A causal language model with frozen weights over static KV slots.

    Attributes:
        mask_kind: device, dtype and attention window.
        num_weights: weights that one pass reads, the embedding table left out.
    """

    mask_kind: MaskKind
    num_weights: int

    @property
    def shape(self) -> DecoderShape:
        """Its sizes."""

    def new_slots(self, num_slots: int, max_context_tokens: int) -> KvSlots:
        """Allocate KV for this decoder."""

    def forward(self, batch: Pass, slots: KvSlots, features: FeatureSlots | None = None) -> Tensor:
        """Compute a pass and write its KV; return one state per token, [N, ...].

        Args:
            batch: the tokens.
            slots: KV to extend.
            features: where to write the hidden states of its taps; None where nobody reads any.
        """

    def logits(self, states: Tensor) -> Tensor:
        """Return logits [n, V or reduced V] of some of the states."""


def features_for(
    shape: DecoderShape,
    taps: tuple[int, ...],
    num_slots: int,
    max_context_tokens: int,
    kind: MaskKind,
) -> FeatureSlots:
    """Allocate room for the hidden states of some taps of a decoder."""
    return FeatureSlots(
        taps=taps,
        num_slots=num_slots,
        max_context_tokens=max_context_tokens,
        hidden_size=shape.hidden_size,
        dtype=kind.dtype,
        device=kind.device,
    )


def slots_for(
    shape: DecoderShape,
    num_slots: int,
    max_context_tokens: int,
    kind: MaskKind,
) -> KvSlots:
    """Allocate KV slots for a decoder of these sizes."""
    return KvSlots(
        num_layers=shape.num_layers,
        num_slots=num_slots,
        num_kv_heads=shape.num_kv_heads,
        max_context_tokens=max_context_tokens,
        head_dim=shape.head_dim,
        dtype=kind.dtype,
        device=kind.device,
    )
