"""Attention of a pass over the KV slots, grouped-query heads folded into the query length."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tuner.engine.model.passes import LongSpan, PaddedSpans, Pass
from tuner.engine.model.slots import KvSlots


class PassAttention:
    """Attention of one pass; built once, called for every layer."""

    def __init__(self, batch: Pass, slots: KvSlots, num_heads: int) -> None:
        self._slots = slots
        self._groups = num_heads // slots.num_kv_heads
        self._short = batch.short
        self._long = batch.long
        self._mask = _folded_mask(batch.short, slots.num_kv_heads, self._groups)
        self._is_dense = batch.short is not None and not batch.long and _is_dense(batch.short)

    def __call__(self, layer: int, queries: Tensor) -> Tensor:
        """Attend.

        Args:
            layer: which layer's KV.
            queries: [N, heads, head dim], rotated; scaled by 1/sqrt(head dim) here.

        Returns:
            [N, heads * head dim].
        """
        if self._is_dense and self._short is not None:
            return self._padded(layer, self._short, queries)
        output = queries.new_empty((queries.shape[0], queries.shape[1] * queries.shape[2]))
        if self._short is not None:
            output[self._short.rows] = self._scattered(layer, self._short, queries)
        self.attend_long(layer, queries, output)
        return output

    @property
    def has_long(self) -> bool:
        """True where some spans are attended alone."""
        return bool(self._long)

    def attend_long(self, layer: int, queries: Tensor, output: Tensor) -> None:
        """Attend the long spans, into their rows of output [N, heads * head dim]."""
        for span in self._long:
            rows = slice(span.first_row, span.first_row + span.length)
            output[rows] = self._alone(layer, span, queries[rows])

    def _scattered(self, layer: int, spans: PaddedSpans, queries: Tensor) -> Tensor:
        """Attend spans of unequal length: pad, attend, pick the real rows."""
        num_cells = (spans.last_slot - spans.first_slot) * spans.width
        grid = queries.new_zeros((num_cells, *queries.shape[1:]))
        grid[spans.cells] = queries[spans.rows]
        return self._padded(layer, spans, grid)[spans.cells]

    def _padded(self, layer: int, spans: PaddedSpans, grid: Tensor) -> Tensor:
        """Attend a full grid [slots * width, heads, head dim]; returns [slots * width, H]."""
        num_slots = spans.last_slot - spans.first_slot
        kv_heads, groups, head_dim = self._slots.num_kv_heads, self._groups, grid.shape[-1]
        folded = grid.view(num_slots, spans.width, kv_heads, groups, head_dim)
        folded = folded.permute(0, 2, 3, 1, 4).reshape(
            num_slots * kv_heads, groups * spans.width, head_dim
        )
        keys = self._entries(self._slots.keys[layer], spans)
        values = self._entries(self._slots.values[layer], spans)
        mixed = self._mixed(folded, keys, values)
        mixed = mixed.view(num_slots, kv_heads, groups, spans.width, head_dim)
        return mixed.permute(0, 3, 1, 2, 4).reshape(num_slots * spans.width, -1)

    def _mixed(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend folded queries [n, q, head dim] to keys and values [n, context, head dim].

        In bfloat16 oneDNN compiles its products anew for each context length, which took 1 to 3 ms
        of every pass of a head; the fused kernel takes 0.03 ms at any length.
        """
        if queries.dtype is not torch.float32:
            return functional.scaled_dot_product_attention(
                queries[None], keys[None], values[None], attn_mask=self._mask[None]
            )[0]
        scale = queries.shape[-1] ** -0.5
        scores = torch.baddbmm(self._mask, queries, keys.transpose(1, 2), alpha=scale)
        return torch.bmm(torch.softmax(scores, -1), values)

    def _entries(self, layer: Tensor, spans: PaddedSpans) -> Tensor:
        """Return the KV of the slot range as [slots * KV heads, context, head dim], no copy."""
        chosen = layer[spans.first_slot : spans.last_slot]
        return chosen.view(-1, *chosen.shape[2:])[:, : spans.context]

    def _alone(self, layer: int, span: LongSpan, queries: Tensor) -> Tensor:
        """Attend one long span; returns [length, H]."""
        keys = self._slots.keys[layer][span.slot : span.slot + 1, :, : span.end]
        values = self._slots.values[layer][span.slot : span.slot + 1, :, : span.end]
        mixed = functional.scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            keys,
            values,
            attn_mask=span.mask,
            is_causal=span.mask is None,
            enable_gqa=self._groups > 1,
        )
        return mixed[0].transpose(0, 1).reshape(span.length, -1)


def _folded_mask(spans: PaddedSpans | None, kv_heads: int, groups: int) -> Tensor:
    """Return the mask for folded heads, [slots * KV heads, groups * width, context]."""
    if spans is None:
        return torch.empty(0)
    num_slots, width, context = spans.mask.shape
    shape = (num_slots, kv_heads, groups, width, context)
    folded = spans.mask[:, None, None].expand(shape)
    return folded.reshape(num_slots * kv_heads, groups * width, context)


def _is_dense(spans: PaddedSpans) -> bool:
    """Say whether the grid holds exactly the pass's rows, in order."""
    num_cells = (spans.last_slot - spans.first_slot) * spans.width
    return len(spans.cells) == num_cells and bool(
        torch.equal(spans.cells, spans.rows)
        and torch.equal(spans.rows, torch.arange(num_cells, device=spans.rows.device))
    )
