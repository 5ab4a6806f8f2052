from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.records import Plan
from tests.databases import migrated_file
from tests.fixtures.player import Player, playing
from tests.fixtures.sites import site_on
from tests.tuner.engine.server.running import RunningEngine, running_engine, tiny_settings
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.workflows.site import Site

__all__ = ["migrated_file"]

PROMPT = "the user is a person who reads the answer of the model. "


@pytest.fixture
def player() -> Iterator[Player]:
    with playing(Player()) as started:
        yield started


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny")


@pytest.fixture(scope="module")
def long_engine(tiny_model: Path) -> Iterator[RunningEngine]:
    with running_engine(tiny_settings(tiny_model)) as running:
        yield running


@pytest.fixture
def engine(long_engine: RunningEngine) -> RunningEngine:
    """A real engine with a tiny model, speculation off everywhere, capture off."""
    long_engine.http.put("/spec/plan", json=Plan().to_dict()).raise_for_status()
    long_engine.http.put("/spec/capture", json={"enabled": False}).raise_for_status()
    return long_engine


@pytest.fixture
def fresh_engine(tiny_model: Path) -> Iterator[RunningEngine]:
    """A real engine that has just started."""
    with running_engine(tiny_settings(tiny_model)) as running:
        yield running


@pytest.fixture
def site(migrated_file: Path, tmp_path: Path, engine: RunningEngine) -> Iterator[Site]:
    with site_on(
        migrated_file,
        tmp_path,
        engine.url,
        capture_enabled=True,
        capture_share=1.0,
        require_evaluation=False,
    ) as opened:
        yield opened


@pytest.fixture
def ask(engine: RunningEngine) -> Callable[..., None]:
    """Sends one request as a client would."""

    def send(route: str = "chat", prompt: str = PROMPT, **sampling: object) -> None:
        body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, **sampling}
        headers = {"x-spectuner-route": route}
        engine.http.post("/v1/completions", json=body, headers=headers).raise_for_status()

    return send
