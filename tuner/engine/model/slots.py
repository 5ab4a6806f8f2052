"""Static KV slots: one per running sequence. Rolling back is a shorter length, never a copy.

`FeatureSlots` keeps hidden states of the target in the same way, for drafters that read them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FINAL = -1
"""Tap of the state after the final norm, from which the logits come."""


class KvSlots:
    """Keys and values of every layer for a fixed number of sequences.

    Attributes:
        keys: per layer [slots, KV heads, context, head dim].
        values: likewise.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_slots: int,
        num_kv_heads: int,
        max_context_tokens: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (num_layers, 2, num_slots, num_kv_heads, max_context_tokens, head_dim)
        # One tensor, so that what concerns a whole slot is one operation over all layers.
        self._all = torch.zeros(shape, dtype=dtype, device=device)
        self.keys = [self._all[layer, 0] for layer in range(num_layers)]
        self.values = [self._all[layer, 1] for layer in range(num_layers)]
        self.num_slots = num_slots
        self.num_kv_heads = num_kv_heads
        self.max_context_tokens = max_context_tokens

    def flat_index(self, slots: Tensor, entries: Tensor) -> Tensor:
        """Return where heads of (slot, entry) pairs live in a flat layer.

        Args:
            slots: [N] int64.
            entries: [N] int64, which KV entry of the slot; a committed token's is its position.

        Returns:
            [N * KV heads] int64 rows of the layer seen as [slots * KV heads * context, head dim].
        """
        heads = torch.arange(self.num_kv_heads, device=slots.device)
        first = slots * (self.num_kv_heads * self.max_context_tokens) + entries
        return (first[:, None] + heads * self.max_context_tokens).flatten()

    def write(self, layer: int, index: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store new entries of one layer.

        Args:
            layer: which.
            index: [N * KV heads] from `flat_index`.
            keys: [N, KV heads, head dim].
            values: [N, KV heads, head dim].
        """
        head_dim = keys.shape[-1]
        self.keys[layer].view(-1, head_dim).index_copy_(0, index, keys.reshape(-1, head_dim))
        self.values[layer].view(-1, head_dim).index_copy_(0, index, values.reshape(-1, head_dim))

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` entries of one slot over another."""
        self._all[:, :, target, :, :length] = self._all[:, :, source, :, :length]

    def gather(self, slot: int, start: int, entries: Sequence[int]) -> None:
        """Bring scattered entries of a slot together: entries[i] goes to start + i.

        Args:
            slot: which.
            start: first entry written.
            entries: ascending, none below `start`.
        """
        wanted = torch.tensor(entries, device=self._all.device)
        held = self._all[:, :, slot]
        held[:, :, :, start : start + len(entries)] = held.index_select(3, wanted)


class FeatureSlots:
    """Hidden states of the target by slot and entry, beside its KV and as long valid.

    Tap i below the number of layers is the residual stream entering layer i; `FINAL` is the state
    after the final norm.

    Attributes:
        taps: which states, in the order of `values`.
        values: [slots, context, taps, H].
    """

    def __init__(
        self,
        *,
        taps: tuple[int, ...],
        num_slots: int,
        max_context_tokens: int,
        hidden_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.taps = taps
        shape = (num_slots, max_context_tokens, len(taps), hidden_size)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def write(self, tap: int, slots: Tensor, entries: Tensor, hidden: Tensor) -> None:
        """Store one tap's states [N, H] at (slot, entry) pairs; does nothing for a tap not kept."""
        if tap in self.taps:
            self.values[slots, entries, self.taps.index(tap)] = hidden

    def read(self, slot: int, start: int, end: int, taps: Sequence[int]) -> Tensor:
        """Return the states [end - start, taps, H] of a slot's entries."""
        chosen = [self.taps.index(tap) for tap in taps]
        return self.values[slot, start:end, chosen]

    def at(self, slots: Tensor, entries: Tensor, taps: Sequence[int]) -> Tensor:
        """Return the states [N, taps, H] at (slot, entry) pairs."""
        chosen = torch.tensor([self.taps.index(tap) for tap in taps], device=self.values.device)
        return self.values[slots[:, None], entries[:, None], chosen]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` entries of one slot over another."""
        self.values[target, :length] = self.values[source, :length]

    def gather(self, slot: int, start: int, entries: Sequence[int]) -> None:
        """Bring scattered entries of a slot together, as `KvSlots.gather` does."""
        wanted = torch.tensor(entries, device=self.values.device)
        self.values[slot, start : start + len(entries)] = self.values[slot, wanted]
