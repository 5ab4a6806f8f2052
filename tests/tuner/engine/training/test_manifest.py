"""The shipped heads are the ones their manifests describe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tuner import engine
from tuner.engine.training.distill import Recipe
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.head import WEIGHTS_NAME, is_ascending
from tuner.engine.training.job import REHEARSED_DEPTHS
from tuner.engine.training.manifest import (
    MANIFEST_NAME,
    DataSource,
    TrainingRun,
    add_acceptance,
    file_digest,
    write_manifest,
)
from tuner.engine.training.measure import RouteAcceptance
from tuner.engine.training.methods import HEADS
from tuner.engine.training.target import Target

HEADS_FOLDER = Path(engine.__file__).parent / "heads"
SHIPPED = HEADS_FOLDER / "smollm2-135m-instruct"
ROUTES = ("code_edit", "rag_answer", "json_extract", "chat", "story", "all")
MAX_SHIPPED_BYTES = 60_000_000


def _manifest(method: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((SHIPPED / method / MANIFEST_NAME).read_text())
    return manifest


def test_every_method_ships_a_head_and_all_together_stay_small() -> None:
    assert {path.name for path in SHIPPED.iterdir() if path.is_dir()} == set(HEADS)
    sizes = [path.stat().st_size for path in HEADS_FOLDER.rglob("*") if path.is_file()]
    assert sum(sizes) <= MAX_SHIPPED_BYTES


@pytest.mark.parametrize("method", HEADS)
def test_the_shipped_file_is_the_measured_one(method: str) -> None:
    manifest, weights = _manifest(method), SHIPPED / method / WEIGHTS_NAME
    assert manifest["weights_sha256"] == file_digest(weights)
    assert manifest["weights_bytes"] == weights.stat().st_size
    assert manifest["name"] == f"smollm2-135m-instruct-{method.replace('_', '-')}"
    assert manifest["target_hash"] == _manifest("draft_model")["target_hash"]


@pytest.mark.parametrize("method", HEADS)
def test_the_shipped_file_proposes_8192_ascending_tokens_with_the_end_token(method: str) -> None:
    vocab = HEADS[method].vocab_of(load_file(SHIPPED / method / WEIGHTS_NAME))
    assert vocab is not None
    assert vocab.shape == (8192,)
    assert is_ascending(vocab)
    assert 2 in vocab


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("method", HEADS)
def test_the_manifest_states_the_acceptance_of_each_route_by_position(
    method: str, route: str
) -> None:
    measured = _manifest(method)["acceptance"][route]
    shares = measured["accepted_by_position"]
    assert measured["k"] == len(shares) == (HEADS[method].max_depth or REHEARSED_DEPTHS)
    assert shares == sorted(shares, reverse=True)
    assert 1.0 > shares[0] > 0.2
    assert measured["tokens_per_pass"] > 1.2


ROUTE = RouteAcceptance(
    route="all",
    passes=10.0,
    accepted_by_position=(6.0, 3.0),
    drafted_by_position=(10.0, 8.0),
    tokens=19,
)


@pytest.fixture
def weights(tiny_target: Target, tmp_path: Path) -> Path:
    """Some weights with a manifest beside them."""
    path = tmp_path / WEIGHTS_NAME
    path.write_bytes(b"weights")
    source = DataSource(digest="d", num_answers=4, num_tokens=50, kinds={"chat": 4})
    run = TrainingRun(
        recipe=Recipe(num_steps=7, seed=3), copies_ratio=0.1, trained_tokens=99, notes="one line"
    )
    write_manifest(tmp_path / MANIFEST_NAME, path, "eagle", tiny_target, source, run)
    return path


def test_a_written_manifest_names_target_data_and_training(
    tiny_target: Target, weights: Path
) -> None:
    manifest = json.loads(weights.with_name(MANIFEST_NAME).read_text())
    assert manifest["name"] == "smollm2-135m-instruct-eagle"
    assert manifest["target_hash"] == tiny_target.digest
    assert manifest["weights_sha256"] == file_digest(weights)
    assert manifest["data"] == {
        "sha256": "d",
        "answers": 4,
        "answer_tokens": 50,
        "kinds": {"chat": 4},
    }
    assert manifest["training"]["recipe"]["num_steps"] == 7
    assert manifest["training"]["recipe"]["seed"] == 3
    assert manifest["training"]["trained_tokens"] == 99
    assert manifest["acceptance"] == {}


def test_measured_acceptance_is_added_and_nothing_else_changes(weights: Path) -> None:
    path = weights.with_name(MANIFEST_NAME)
    before = json.loads(path.read_text())
    add_acceptance(path, weights, {"all": ROUTE})
    after = json.loads(path.read_text())
    assert after.pop("acceptance")["all"] == {
        "k": 2,
        "tokens": 19,
        "tokens_per_pass": 1.9,
        "mean_accepted": 0.9,
        "accepted_by_position": [0.6, 0.375],
    }
    assert after == {name: value for name, value in before.items() if name != "acceptance"}


def test_acceptance_of_other_weights_is_refused(weights: Path) -> None:
    weights.write_bytes(b"other weights")
    with pytest.raises(TrainingError, match="describes other weights"):
        add_acceptance(weights.with_name(MANIFEST_NAME), weights, {"all": ROUTE})


def test_a_damaged_manifest_is_refused(weights: Path) -> None:
    path = weights.with_name(MANIFEST_NAME)
    path.write_text("{")
    with pytest.raises(TrainingError, match="cannot read"):
        add_acceptance(path, weights, {"all": ROUTE})
