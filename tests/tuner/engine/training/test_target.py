"""The batch forward pass gives what transformers gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from tuner.engine.model.weights import hash_weights
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.target import BatchTarget, Target, load_target


def _expected(model: LlamaForCausalLM, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0, -1]
    return logits


def test_prefill_and_steps_of_unequal_rows_give_the_logits_of_transformers(
    tiny_model: LlamaForCausalLM, tiny_target: Target
) -> None:
    rng = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, 128, (n,), generator=rng).tolist() for n in (3, 126, 131)]
    batch = BatchTarget(tiny_target, max_rows=4, max_length=200, dtype=torch.float32)
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(p) for p in prompts], batch_first=True)
    logits = batch.prefill(padded, torch.tensor([len(p) for p in prompts]), first_row=0)
    for _ in range(4):
        for row, prompt in enumerate(prompts):
            torch.testing.assert_close(
                logits[row], _expected(tiny_model, prompt), rtol=1e-3, atol=1e-3
            )
            prompt.append(int(logits[row].argmax()))
        positions = torch.tensor([len(p) - 1 for p in prompts])
        logits = batch.step(torch.tensor([p[-1] for p in prompts]), positions)


def test_a_moved_row_goes_on_as_it_would_have(
    tiny_model: LlamaForCausalLM, tiny_target: Target
) -> None:
    batch = BatchTarget(tiny_target, max_rows=3, max_length=64, dtype=torch.float32)
    prompts = torch.tensor([[5, 6, 7], [9, 8, 7], [1, 2, 3]])
    batch.prefill(prompts, torch.tensor([3, 3, 3]), first_row=0)
    batch.move_row(2, 0)
    logits = batch.step(torch.tensor([4]), torch.tensor([3]))
    torch.testing.assert_close(logits[0], _expected(tiny_model, [1, 2, 3, 4]), rtol=1e-3, atol=1e-3)


def test_the_digest_is_the_one_by_which_the_engine_knows_the_target(
    tiny_folder: Path, tiny_target: Target
) -> None:
    state = load_file(tiny_folder / "model.safetensors")
    named = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    assert tiny_target.digest == hash_weights(named)


def test_a_folder_without_a_model_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=f"cannot load the target from {tmp_path}"):
        load_target(tmp_path)
