from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest
import torch
from transformers import LlamaForCausalLM

from tests.tuner.engine.server.running import RunningEngine, running_engine, tiny_settings
from tests.tuner.engine.server.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny")


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Iterator[RunningEngine]:
    with running_engine(tiny_settings(tiny_model)) as running:
        yield running


@pytest.fixture
def client(engine: RunningEngine) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def greedy_reference(tiny_model: Path) -> Callable[[list[int], int], list[int]]:
    """Transformers' own greedy continuation of a prompt, end tokens taken as any other."""
    model = LlamaForCausalLM.from_pretrained(tiny_model)

    def continuation(prompt_ids: list[int], num_tokens: int) -> list[int]:
        ids = torch.tensor([prompt_ids])
        with torch.inference_mode():
            for _ in range(num_tokens):
                following = model(ids).logits[:, -1].argmax(-1, keepdim=True)
                ids = torch.cat([ids, following], dim=1)
        return [int(token) for token in ids[0, len(prompt_ids) :]]

    return continuation
