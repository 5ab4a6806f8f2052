"""The draft model's file holds what the engine reads, and nothing of the target."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from tuner.engine.training.draft import DraftModel
from tuner.engine.training.errors import DraftFormatError
from tuner.engine.training.head import VOCAB_NAME
from tuner.engine.training.target import Target

VOCAB = torch.tensor([0, 2, 5, 9, 31, 64, 127], dtype=torch.int32)
LAYER_NAMES = {
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
}


def _saved(target: Target, folder: Path) -> tuple[DraftModel, Path]:
    torch.manual_seed(1)
    model = DraftModel(target, VOCAB)
    path = folder / "model.safetensors"
    model.save(path)
    return model, path


def test_the_file_has_hugging_face_names_and_only_the_trained_tensors(
    tiny_target: Target, tmp_path: Path
) -> None:
    _, path = _saved(tiny_target, tmp_path)
    tensors = load_file(path)
    layers = {f"layers.{i}.{name}" for i in range(2) for name in LAYER_NAMES}
    assert set(tensors) == layers | {"norm.weight", VOCAB_NAME}
    assert tensors.pop(VOCAB_NAME).dtype == torch.int32
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}


def test_a_saved_model_comes_back_up_to_bfloat16(tiny_target: Target, tmp_path: Path) -> None:
    model, path = _saved(tiny_target, tmp_path)
    loaded = DraftModel.load(tiny_target, path)
    assert torch.equal(loaded.draft_vocab, VOCAB)
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name].bfloat16().float())


def test_all_layers_copied_from_the_target_give_the_targets_own_scores(
    tiny_model: LlamaForCausalLM, tiny_target: Target
) -> None:
    model = DraftModel(tiny_target, VOCAB, num_layers=3)
    model.copy_layers(tiny_target, [0, 1, 2])
    tokens = torch.tensor([[3, 17, 80, 4, 9]])
    with torch.inference_mode():
        expected = tiny_model(tokens).logits[..., VOCAB.long()]
        torch.testing.assert_close(
            model.logits(model.hidden(tokens)), expected, rtol=1e-4, atol=1e-4
        )


def test_a_token_does_not_see_those_after_it(tiny_target: Target) -> None:
    model = DraftModel(tiny_target, VOCAB)
    first = model.hidden(torch.tensor([[3, 17, 80, 4]]))[0, :3]
    second = model.hidden(torch.tensor([[3, 17, 80, 90]]))[0, :3]
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("damage", ["missing", "extra", "unsorted", "no_vocab", "cut"])
def test_a_file_that_does_not_fit_is_refused_in_one_line(
    tiny_target: Target, tmp_path: Path, damage: str
) -> None:
    _, path = _saved(tiny_target, tmp_path)
    tensors = load_file(path)
    if damage == "missing":
        del tensors["norm.weight"]
    if damage == "extra":
        tensors["lm_head.weight"] = torch.zeros(1)
    if damage == "unsorted":
        tensors[VOCAB_NAME] = tensors[VOCAB_NAME].flip(0).contiguous()
    if damage == "no_vocab":
        del tensors[VOCAB_NAME]
    save_file(tensors, path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DraftFormatError) as refused:
        DraftModel.load(tiny_target, path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
