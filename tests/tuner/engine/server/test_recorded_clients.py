"""Requests that real clients sent, recorded by ``python -m tests.clients --record``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tuner.engine.server.running import MODEL, RunningEngine

FOLDER = Path(__file__).parents[3] / "fixtures" / "clients"
CLIENTS = ("aiperf", "guidellm", "langchain", "litellm", "lmeval", "openai")


def for_tiny_model(body: dict[str, object] | None, vocab_size: int) -> dict[str, object] | None:
    """Name the tiny model, and keep token ids within its vocabulary."""
    if body is None:
        return None
    body = {**body, "model": MODEL} if "model" in body else body
    prompt = body.get("prompt")
    return {**body, "prompt": within(prompt, vocab_size)} if prompt is not None else body


def within(prompt: object, vocab_size: int) -> object:
    if isinstance(prompt, list):
        return [within(entry, vocab_size) for entry in prompt]
    return prompt % vocab_size if isinstance(prompt, int) else prompt


@pytest.mark.parametrize("client", CLIENTS)
def test_each_request_of_a_client_is_answered_as_it_was_when_recorded(
    engine: RunningEngine, client: str
):
    vocab_size = engine.loaded.capabilities.vocab_size
    lines = (FOLDER / f"{client}.jsonl").read_text().splitlines()
    differing = []
    for line in lines:
        recorded = json.loads(line)
        answer = engine.http.request(
            recorded["method"],
            recorded["path"],
            json=for_tiny_model(recorded["body"], vocab_size),
        )
        if answer.status_code != recorded["status"]:
            differing.append((recorded, answer.status_code, answer.text[:300]))

    assert lines
    assert differing == []


def test_every_recorded_client_is_named():
    assert sorted(file.stem for file in FOLDER.glob("*.jsonl")) == list(CLIENTS)
