"""Attention over padded spans in reduced precision, where another kernel computes it."""

from __future__ import annotations

import pytest
import torch

from tuner.engine.model.attention import PassAttention
from tuner.engine.model.passes import MaskKind, Span, lay_out
from tuner.engine.model.slots import KvSlots

CPU, CONTEXT, HEADS, KV_HEADS, HEAD_DIM = torch.device("cpu"), 48, 6, 2, 8
TREE = (-1, 0, 0, 1, 1, 2)
MIXED = [
    Span(slot=0, start=20, token_ids=[1] * len(TREE), parents=TREE),
    Span(slot=1, start=0, token_ids=[2]),
    Span(slot=3, start=9, token_ids=[3, 4]),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spans", [MIXED, MIXED[:1]], ids=["mixed", "a tree alone"])
def test_trees_and_chains_are_attended_as_in_float32(spans: list[Span], dtype: torch.dtype) -> None:
    dice = torch.Generator().manual_seed(5)
    shape = (sum(len(span.token_ids) for span in spans), HEADS, HEAD_DIM)
    queries = torch.randn(shape, generator=dice).to(dtype)
    outputs = []
    for computed in (dtype, torch.float32):
        slots = KvSlots(
            num_layers=1,
            num_slots=4,
            num_kv_heads=KV_HEADS,
            max_context_tokens=CONTEXT,
            head_dim=HEAD_DIM,
            dtype=computed,
            device=CPU,
        )
        filled = torch.Generator().manual_seed(6)
        for layer in (*slots.keys, *slots.values):
            layer.copy_(torch.randn(layer.shape, generator=filled).to(dtype))
        batch = lay_out(spans, MaskKind(device=CPU, dtype=computed))
        outputs.append(PassAttention(batch, slots, HEADS)(0, queries.to(computed)).float())
    torch.testing.assert_close(*outputs, atol=2e-2, rtol=2e-2)
