"""A tiny model whose context holds the demo's prompts, and questions it can answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.tuner.engine.server.tiny_model import write_tiny_model

CONTEXT_TOKENS = 1024
QUESTIONS = [
    {"category": "rag", "turns": ["the answer is short, the answer is short"]},
    {"category": "summarization", "turns": ["the user reads the answer of the model"]},
    {"category": "qa", "turns": ["return the value", "and now the name"]},
    {"category": "qa", "turns": ["the person who reads"]},
]


@pytest.fixture(scope="session")
def roomy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = write_tiny_model(tmp_path_factory.mktemp("roomy") / "tiny")
    config = json.loads((directory / "config.json").read_text())
    config["max_position_embeddings"] = CONTEXT_TOKENS
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="session")
def parrot(roomy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says its last token again and again: only its embedding counts."""
    directory = tmp_path_factory.mktemp("parrot") / "tiny"
    shutil.copytree(roomy_model, directory)
    model = AutoModelForCausalLM.from_pretrained(directory, local_files_only=True)
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    model.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def questions_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    path.write_text("\n".join(json.dumps(question) for question in QUESTIONS))
    return path
