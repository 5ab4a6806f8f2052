"""The engine reads a trained file and scores exactly what training scored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.tuner.engine.training.tiny_engine import engine_decoder
from tuner.engine.model.heads.base import HeadTarget, RecurrentHead
from tuner.engine.model.heads.formats import (
    read_eagle,
    read_medusa,
    read_mlp_speculator,
    read_mtp,
)
from tuner.engine.model.heads.head_file import HeadFile, read_head_file
from tuner.engine.model.passes import MaskKind, Span, lay_out
from tuner.engine.model.slots import KvSlots
from tuner.engine.training.batching import Batch
from tuner.engine.training.features import feature_layers
from tuner.engine.training.head import DraftHead
from tuner.engine.training.methods import HEADS
from tuner.engine.training.target import BatchTarget, Target

VOCAB = torch.arange(1, 128, 2, dtype=torch.int32)
TOKENS, ROOT, DEPTHS = torch.tensor([3, 17, 80, 4, 9, 44, 21, 90]), 4, 3


def _recurrent(head: RecurrentHead, states: Tensor) -> list[Tensor]:
    """Draft the rest of TOKENS as the engine does: one pass over the text, then one a token."""
    shape = head.shape
    slots = KvSlots(
        num_layers=shape.num_layers,
        num_slots=1,
        num_kv_heads=shape.num_kv_heads,
        max_context_tokens=16,
        head_dim=shape.head_dim,
        device=head.device,
        dtype=head.dtype,
    )
    kind = MaskKind(device=head.device, dtype=head.dtype, window=None)
    found, fed = [], head.fuse(states[:ROOT, : len(head.taps)])
    tokens, start = TOKENS[1 : ROOT + 1].tolist(), 0
    for depth in range(DEPTHS):
        batch = lay_out([Span(slot=0, start=start, token_ids=tokens)], kind)
        fed = head.forward(batch, fed, slots, 0)[-1:]
        found.append(head.logits(fed, 0)[0])
        start, tokens = start + len(tokens), [int(TOKENS[ROOT + 1 + depth])]
    return found


def _eagle(file: HeadFile, target: HeadTarget, states: Tensor) -> list[Tensor]:
    return _recurrent(read_eagle(file, target), states)


def _mtp(file: HeadFile, target: HeadTarget, states: Tensor) -> list[Tensor]:
    return _recurrent(read_mtp(file, target), states[:, -1:])


def _medusa(file: HeadFile, target: HeadTarget, states: Tensor) -> list[Tensor]:
    logits = read_medusa(file, target).logits(states[ROOT - 1 : ROOT, -1], DEPTHS)
    return list(logits[:, 0])


def _mlp_speculator(file: HeadFile, target: HeadTarget, states: Tensor) -> list[Tensor]:
    speculator = read_mlp_speculator(file, target)
    state, found = speculator.begin(states[ROOT - 1 : ROOT, -1]), []
    for depth in range(DEPTHS):
        state = speculator.advance(depth, state, TOKENS[ROOT + depth : ROOT + depth + 1])
        found.append(speculator.logits(depth, state)[0])
    return found


ENGINE: dict[str, Callable[[HeadFile, HeadTarget, Tensor], list[Tensor]]] = {
    "eagle": _eagle,
    "mtp": _mtp,
    "medusa": _medusa,
    "mlp_speculator": _mlp_speculator,
}


def _trained(head: DraftHead, states: Tensor) -> list[Tensor]:
    places = torch.arange(len(TOKENS))[None]
    batch = Batch(
        tokens=TOKENS[None],
        lengths=torch.tensor([len(TOKENS)]),
        is_known=places > ROOT,
        draft_tokens=torch.zeros_like(places),
        top_ids=torch.zeros(1, len(TOKENS), 1, dtype=torch.int64),
        top_logprobs=torch.zeros(1, len(TOKENS), 1),
        states=states[None],
    )
    found: list[Tensor] = []

    def score(depth: int, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        del rows
        is_ours = columns == ROOT + 1 + depth
        found.append(head.logits(hidden[is_ours])[0])
        return torch.ones(len(columns), dtype=torch.bool)

    head(batch, score, DEPTHS)
    return found


@pytest.mark.parametrize("method", ENGINE)
def test_the_engine_scores_what_training_scored(
    tiny_target: Target, tmp_path: Path, method: str
) -> None:
    torch.manual_seed(1)
    HEADS[method](tiny_target, VOCAB).save(tmp_path / "model.safetensors")
    manifest = json.dumps({"method": method, "target_hash": tiny_target.digest})
    (tmp_path / "manifest.json").write_text(manifest)
    head = HEADS[method].load(tiny_target, tmp_path / "model.safetensors")
    decoder = engine_decoder(tiny_target)
    target = HeadTarget(
        shape=decoder.shape,
        embedding=decoder.embedding,
        output_rows=decoder.output_rows,
        dtype=torch.float32,
    )
    with torch.inference_mode():
        model = BatchTarget(tiny_target, 0, 16, dtype=torch.float32)
        states = model.states(TOKENS[None], feature_layers(tiny_target.shape))[0]
        expected = _trained(head, states)
        scored = ENGINE[method](read_head_file(tmp_path), target, states)
    for ours, theirs in zip(expected, scored, strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-3, atol=1e-3)
