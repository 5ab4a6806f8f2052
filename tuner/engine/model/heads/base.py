"""What heads share: the target's frozen parts, and the contract of those that feed themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from tuner.engine.model.decoder import DecoderShape
from tuner.engine.model.layers import LlamaShape
from tuner.engine.model.linear import FrozenLinear, can_pack, frozen_linear
from tuner.engine.model.passes import Pass
from tuner.engine.model.slots import KvSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTarget:
    """The parts of a target that heads are built on.

    Attributes:
        shape: its sizes.
        embedding: [V, H], of any dtype.
        output_rows: [V, H], what its final state is multiplied with.
        dtype: that the head computes in.
    """

    shape: DecoderShape
    embedding: Tensor
    output_rows: Tensor
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return self.embedding.device

    @property
    def is_packed(self) -> bool:
        """True where products are prepacked."""
        return can_pack(self.device)

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return the embedding [..., H] of tokens [...], in the head's dtype."""
        return functional.embedding(token_ids, self.embedding).to(self.dtype)

    def cast(self, weight: Tensor) -> Tensor:
        """Return a weight where and how the head computes."""
        return weight.to(self.device, self.dtype)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> FrozenLinear:
        """Return the product with weights [out, in] and an optional bias [out]."""
        cast = None if bias is None else self.cast(bias)
        return frozen_linear(self.cast(weight), cast, is_packed=self.is_packed)

    def output(self, vocab: Tensor | None, rows: Tensor | None = None) -> FrozenLinear:
        """Return the product with output rows.

        Args:
            vocab: [reduced V] int64 ids to score; None for all.
            rows: [reduced V, H] of the head's own; None takes the target's.
        """
        if rows is not None:
            return self.linear(rows)
        chosen = self.output_rows if vocab is None else self.output_rows[vocab.to(self.device)]
        return self.linear(chosen)


class RecurrentHead(Protocol):
    """A head that reads the target's states first, then its own, one token after the other.

    Entry i joins a state with the embedding of the token after it and gives the state for the
    token after that one.

    Attributes:
        shape: sizes of its layers; `num_layers` is the number of modules, each with its own KV.
            Draft token j is given by module j modulo that number.
        taps: which states of the target it reads.
        dtype: of its states and its KV.
        device: where it computes.
        vocab: [reduced V] int64 ids behind its logits, ascending; None for all.
    """

    shape: LlamaShape
    taps: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    vocab: Tensor | None

    def fuse(self, features: Tensor) -> Tensor:
        """Return the states [N, H] to start from, of the target's taps [N, taps, H]."""

    def forward(self, batch: Pass, states: Tensor, slots: KvSlots, module: int) -> Tensor:
        """Compute a pass of one module and write its KV.

        Args:
            batch: the tokens whose embedding is joined.
            states: [N, H] the states before them.
            slots: KV of all modules.
            module: which.

        Returns:
            [N, H] states, to be scored and to be fed back.
        """

    def logits(self, states: Tensor, module: int) -> Tensor:
        """Return logits [n, V or reduced V] of some states of a module."""
