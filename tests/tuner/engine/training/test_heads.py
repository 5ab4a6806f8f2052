"""Every head predicts what its public forward predicts, and writes the public file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tuner.engine.training.batching import Batch
from tuner.engine.training.draft import DraftModel
from tuner.engine.training.eagle import EagleHead
from tuner.engine.training.errors import DraftFormatError, TrainingError
from tuner.engine.training.features import feature_layers
from tuner.engine.training.head import DraftHead
from tuner.engine.training.medusa import MedusaHead
from tuner.engine.training.methods import HEADS, head_kind
from tuner.engine.training.mlp_speculator import MlpSpeculator
from tuner.engine.training.mtp import MtpHead
from tuner.engine.training.pard import PardModel
from tuner.engine.training.scoring import TrainingScore
from tuner.engine.training.target import BatchTarget, Target
from tuner.engine.training.unroll import UnrolledHead

VOCAB = torch.arange(1, 128, 2, dtype=torch.int32)
LENGTHS, FIRST, DEPTHS = (12, 9), 4, 3
LAYER = (
    {f"self_attn.{part}_proj.weight" for part in "qkvo"}
    | {f"mlp.{part}_proj.weight" for part in ("gate", "up", "down")}
    | {"input_layernorm.weight", "post_attention_layernorm.weight"}
)
EAGLE = {f"midlayer.{name}" for name in LAYER | {"hidden_norm.weight"}}
MTP = LAYER | {"enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight"}
DRAFT = {f"layers.{n}.{name}" for n in (0, 1) for name in LAYER} | {"norm.weight"}
MEDUSA = ("0.linear.weight", "0.linear.bias", "1.proj.weight")
MLP = ("proj.{}.weight", "ln.{}.weight", "ln.{}.bias")
NAMES = {
    "eagle": EAGLE | {"fc.weight", "norm.weight", "d2t", "t2d"},
    "mtp": {f"model.layers.3.{name}" for name in MTP} | {"draft_vocab"},
    "draft_model": DRAFT | {"draft_vocab"},
    "pard": DRAFT | {"mask_embedding", "draft_vocab"},
    "medusa": {f"{n}.{name}" for n in range(4) for name in MEDUSA} | {"draft_vocab"},
    "mlp_speculator": {f"speculator.{name.format(n)}" for n in range(4) for name in MLP}
    | {"speculator.emb_proj.weight", "speculator.head_proj.weight", "draft_vocab"},
}


def _head(method: str, target: Target) -> DraftHead:
    torch.manual_seed(1)
    head = HEADS[method](target, VOCAB)
    with torch.no_grad():
        for weight in head.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return head


@pytest.fixture
def batch(tiny_target: Target) -> Batch:
    """Two sequences of unequal length with states of the target."""
    tokens = torch.randint(3, 128, (2, max(LENGTHS)), generator=torch.Generator().manual_seed(3))
    lengths = torch.tensor(LENGTHS)
    places = torch.arange(max(LENGTHS))
    model = BatchTarget(tiny_target, 0, 16, dtype=torch.float32)
    return Batch(
        tokens=tokens,
        lengths=lengths,
        is_known=(places >= FIRST) & (places < lengths[:, None]),
        draft_tokens=torch.zeros_like(tokens),
        top_ids=torch.zeros(*tokens.shape, 1, dtype=torch.int64),
        top_logprobs=torch.zeros(*tokens.shape, 1),
        states=model.states(tokens, feature_layers(tiny_target.shape)),
    )


def _predictions(
    head: DraftHead, batch: Batch, goes_on: Callable[[Tensor, Tensor], Tensor]
) -> dict[tuple[int, int, int], Tensor]:
    """Return what meets the output rows, by depth, row and predicted place."""
    found = {}

    def score(depth: int, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        for state, row, column in zip(hidden, rows.tolist(), columns.tolist(), strict=True):
            assert (depth, row, column) not in found
            found[depth, row, column] = state
        return goes_on(rows, columns)

    with torch.inference_mode():
        head(batch, score, DEPTHS)
    return found


def _unrolled(head: UnrolledHead, batch: Batch, row: int, root: int, depth: int) -> Tensor:
    """Draft after `root` step by step, as an engine would with a KV cache: the plain way."""
    tokens = batch.tokens[row]
    hidden = head.first_hidden(batch.target_states()[row : row + 1])[:, :root]
    embedded = head.embed(tokens[1 : root + 1])[None]
    for step in range(depth + 1):
        heads, residual = head.enter(embedded, hidden, torch.arange(embedded.shape[1]))
        output = head.leave(residual, heads.attend_causally())
        hidden = torch.cat([hidden, output[:, -1:]], dim=1)
        embedded = torch.cat([embedded, head.embed(tokens[root + 1 + step])[None, None]], dim=1)
        if step == depth or root + 2 + step >= len(tokens):
            break
    return head.scored(output[:, -1])[0]


def _eagle_or_mtp(head: DraftHead, batch: Batch, row: int, root: int, depth: int) -> Tensor:
    assert isinstance(head, EagleHead | MtpHead)
    return _unrolled(head, batch, row, root, depth)


def _pard(head: DraftHead, batch: Batch, row: int, root: int, depth: int) -> Tensor:
    assert isinstance(head, PardModel)
    masks = head.mask_embedding.expand(depth, -1)
    hidden = torch.cat([head.embed(batch.tokens[row, : root + 1]), masks])[None]
    for layer in head.decoder_layers():
        heads = layer.heads(hidden, torch.arange(hidden.shape[1]))
        hidden = layer.finish(hidden, heads.attend_causally())
    state: Tensor = head.norm(hidden[0, -1])
    return state


def _draft(head: DraftHead, batch: Batch, row: int, root: int, depth: int) -> Tensor:
    assert isinstance(head, DraftModel)
    return head.hidden(batch.tokens[row : row + 1, : root + 1 + depth])[0, -1]


def _medusa(head: DraftHead, batch: Batch, row: int, root: int, depth: int) -> Tensor:
    assert isinstance(head, MedusaHead)
    weights = {name.removeprefix("heads."): value for name, value in head.state_dict().items()}
    state = batch.target_states()[row, root - 1, -1]
    linear = weights[f"{depth}.0.linear.weight"] @ state + weights[f"{depth}.0.linear.bias"]
    return weights[f"{depth}.1.proj.weight"] @ (state + linear * linear.sigmoid())


def _mlp(head: DraftHead, batch: Batch, row: int, root: int, depth: int) -> Tensor:
    assert isinstance(head, MlpSpeculator)
    weights = head.state_dict()
    state = batch.target_states()[row, root - 1, -1]
    state = state / (state.pow(2).mean() + 1e-6).sqrt() / 2**0.5
    width = len(weights["emb_proj.weight"])
    state_weight = 0.5 ** (0.5 / 4)
    emb_weight = ((1 - state_weight**2) * width / 2) ** 0.5
    for stage in range(depth + 1):
        read = weights["emb_proj.weight"] @ head.embed(batch.tokens[row, root + stage])
        joined = weights[f"proj.{stage}.weight"] @ state + read * (emb_weight / state_weight)
        normed = joined / (joined.pow(2).mean() + 1e-6).sqrt()
        shifted = weights[f"ln.{stage}.weight"] * normed + weights[f"ln.{stage}.bias"]
        state = torch.nn.functional.gelu(shifted)
    return weights["head_proj.weight"] @ state


PLAIN: dict[str, Callable[[DraftHead, Batch, int, int, int], Tensor]] = {
    "eagle": _eagle_or_mtp,
    "mtp": _eagle_or_mtp,
    "pard": _pard,
    "draft_model": _draft,
    "medusa": _medusa,
    "mlp_speculator": _mlp,
}


def _everything(rows: Tensor, _columns: Tensor) -> Tensor:
    return torch.ones(len(rows), dtype=torch.bool)


def _some(rows: Tensor, columns: Tensor) -> Tensor:
    return (columns + rows) % 3 > 0


@pytest.mark.parametrize("goes_on", [_everything, _some])
@pytest.mark.parametrize("method", HEADS)
def test_a_prediction_is_that_of_a_draft_left_alone(
    tiny_target: Target, batch: Batch, method: str, goes_on: Callable[[Tensor, Tensor], Tensor]
) -> None:
    head = _head(method, tiny_target)
    found = _predictions(head, batch, goes_on)
    deepest = 0
    with torch.inference_mode():
        for (depth, row, column), state in found.items():
            root = column - 1 - depth
            expected = PLAIN[method](head, batch, row, root, depth)
            torch.testing.assert_close(state, expected, rtol=1e-3, atol=1e-3)
            deepest = max(deepest, depth)
    assert deepest == DEPTHS - 1
    assert {column for depth, row, column in found if (depth, row) == (0, 1)} == set(range(4, 9))


@pytest.mark.parametrize("method", HEADS)
def test_the_file_has_the_public_names_and_nothing_of_the_target(
    tiny_target: Target, tmp_path: Path, method: str
) -> None:
    path = tmp_path / "model.safetensors"
    _head(method, tiny_target).save(path)
    tensors = load_file(path)
    assert set(tensors) == NAMES[method]
    trained = [name for name in tensors if name not in {"draft_vocab", "d2t", "t2d"}]
    assert {tensors[name].dtype for name in trained} == {torch.bfloat16}


@pytest.mark.parametrize("method", HEADS)
def test_a_saved_head_comes_back_up_to_bfloat16(
    tiny_target: Target, tmp_path: Path, method: str
) -> None:
    head = _head(method, tiny_target)
    head.save(tmp_path / "model.safetensors")
    loaded = HEADS[method].load(tiny_target, tmp_path / "model.safetensors")
    assert torch.equal(loaded.draft_vocab, VOCAB)
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, head.state_dict()[name].bfloat16().float())


def test_the_eagle_maps_agree_with_each_other(tiny_target: Target, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    _head("eagle", tiny_target).save(path)
    tensors = load_file(path)
    ids = tensors["d2t"] + torch.arange(len(VOCAB))
    assert torch.equal(ids, VOCAB.long())
    assert torch.equal(tensors["t2d"].nonzero()[:, 0], ids)


def test_pard_starts_from_a_draft_model(tiny_target: Target, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    draft = _head("draft_model", tiny_target)
    draft.save(path)
    pard = _head("pard", tiny_target)
    masks = pard.state_dict()["mask_embedding"].clone()
    pard.start_from(tiny_target, path)
    first = "layers.0.mlp.up_proj.weight"
    assert torch.equal(pard.state_dict()[first], draft.state_dict()[first].bfloat16().float())
    assert torch.equal(pard.state_dict()["mask_embedding"], masks)


@pytest.mark.parametrize("method", HEADS)
def test_a_head_goes_on_from_a_trained_one_with_another_vocabulary(
    method: str, tiny_target: Target, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    trained = _head(method, tiny_target)
    trained.save(path)
    head = HEADS[method](tiny_target, VOCAB[:-8] - 1)
    head.start_from(tiny_target, path)
    for name, tensor in trained.state_dict().items():
        assert torch.equal(head.state_dict()[name], tensor.bfloat16().float())
    assert torch.equal(head.draft_vocab, VOCAB[:-8] - 1)


def test_a_head_refuses_to_go_on_from_one_of_another_size(
    tiny_target: Target, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    DraftModel(tiny_target, VOCAB, num_layers=3).save(path)
    with pytest.raises(DraftFormatError, match="does not fit this head"):
        _head("draft_model", tiny_target).start_from(tiny_target, path)


@pytest.mark.parametrize("method", HEADS)
def test_answers_shorter_than_a_draft_are_trained_on(
    method: str, tiny_target: Target, batch: Batch
) -> None:
    head = _head(method, tiny_target)
    places = torch.arange(batch.tokens.shape[1])
    short = replace(batch, is_known=(places == FIRST).expand(len(batch.tokens), -1))
    score = TrainingScore(short, head.output_rows, 1.0, torch.Generator())
    head(short, score, head.trained_depths)
    score.loss().backward()  # type: ignore[no-untyped-call]
    assert score.num_scored >= len(batch.tokens)


def test_an_unknown_method_is_named_with_the_known_ones() -> None:
    with pytest.raises(TrainingError, match=r"unknown method 'hydra': use one of draft_model, "):
        head_kind("hydra")
