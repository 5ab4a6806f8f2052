"""A tiny random Llama in Hugging Face layout, so that the training code runs on real parts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tuner.engine.training.features import write_features
from tuner.engine.training.shards import Answer, write_shard
from tuner.engine.training.target import Target, load_target

TINY = LlamaConfig(
    vocab_size=128,
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    initializer_range=0.3,
    eos_token_id=2,
)


@pytest.fixture(scope="session")
def tiny_model() -> LlamaForCausalLM:
    """The tiny model as transformers runs it."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(TINY)
    model.train(mode=False)
    return model


@pytest.fixture(scope="session")
def tiny_folder(tiny_model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in Hugging Face layout."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_target(tiny_folder: Path) -> Target:
    """The tiny model as the training code reads it."""
    return load_target(tiny_folder)


def counting_answers(first: int, last: int) -> list[Answer]:
    """Answers that count upwards: after token n comes n + 1 with probability 0.9, else n + 2."""
    found = []
    for start in range(first, last):
        tokens = torch.arange(start, start + 12, dtype=torch.int32)
        best = tokens[4:]
        found.append(
            Answer(
                kind="chat",
                tokens=tokens,
                prompt_len=4,
                top_ids=torch.stack([best, best + 1], dim=1),
                top_logprobs=torch.tensor([[0.9, 0.1]] * 8).log().half(),
            )
        )
    return found


@pytest.fixture(scope="session")
def counting_folder(tiny_target: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of counting answers with hidden states, and a held-out one, number 2."""
    folder = tmp_path_factory.mktemp("counting")
    bounds = [(3, 33), (33, 60), (10, 40)]
    shards = [folder / f"shard-{number:05d}.safetensors" for number in range(3)]
    for shard, (first, last) in zip(shards, bounds, strict=True):
        write_shard(shard, counting_answers(first, last), tiny_target.digest)
    write_features(tiny_target, shards, lambda _path, _tokens: None)
    return folder
