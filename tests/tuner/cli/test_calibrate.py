"""``spectuner calibrate`` against a real engine: figures, and one line where it cannot go on."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.records import DecodeStep, JournalRecord
from tests.databases import migrated_file
from tests.tuner.cli.running import ran
from tests.tuner.engine.server.running import RunningEngine, running_engine, tiny_settings
from tests.tuner.engine.server.tiny_model import write_tiny_model

__all__ = ["migrated_file"]


class Hold:
    """Stops the engine in the middle of its steps, on demand."""

    def __init__(self) -> None:
        self.is_wanted = threading.Event()
        self.is_held = threading.Event()
        self.is_released = threading.Event()
        self._steps = 0

    def __call__(self, record: JournalRecord) -> None:
        if not self.is_wanted.is_set() or not isinstance(record, DecodeStep):
            return
        self._steps += 1
        if self._steps == 5:
            self.is_held.set()
            assert self.is_released.wait(120)


@pytest.fixture(scope="module")
def hold() -> Hold:
    return Hold()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, hold: Hold) -> Iterator[RunningEngine]:
    model = write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny")
    with running_engine(tiny_settings(model), observers=(hold,)) as running:
        yield running


@pytest.fixture(autouse=True)
def environment(
    engine: RunningEngine,
    migrated_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copyfile(migrated_file, tmp_path / "spectuner.db")
    monkeypatch.setenv("SPECTUNER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SPECTUNER_ENGINE_URL", engine.url)


def test_figures_of_every_kind_are_written(engine: RunningEngine) -> None:
    code, out, err = ran("calibrate", "--rows", "1,2", "--contexts", "16", "--json", "-")

    figures = json.loads(out)
    assert code == 0, err
    assert set(figures) == {
        "pinned",
        "measured",
        "kept",
        "left_out",
        "steps",
        "drafts",
        "catch_ups",
    }
    assert figures["pinned"] == engine.loaded.pinned.digest
    assert figures["measured"] > 0
    assert all(step["mean_s"] > 0 for step in figures["steps"])
    assert "cells measured" in err


def test_a_busy_engine_is_one_line_and_exit_code_1(engine: RunningEngine, hold: Hold) -> None:
    body = {"prompt": "the user", "max_tokens": 200, "ignore_eos": True, "stream": True}
    hold.is_wanted.set()
    with engine.http.stream("POST", "/v1/completions", json=body):
        assert hold.is_held.wait(120)
        code, out, err = ran("calibrate")
        hold.is_released.set()

    assert (code, out.strip()) == (1, "")
    assert len(err.strip().splitlines()) == 1
    assert "is not idle: 1 requests run and 0 wait; wait for them, or go on with --force" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rows", "two"), "'two' is not a number"),
        (("--rows", "0,1"), "rows must be 1 or more, got [0, 1]"),
        (("--contexts", "1.5"), "1.5 is not a whole number"),
        (("--rows", "64"), "nothing can be measured"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    code, out, err = ran("calibrate", *arguments)

    assert (code, out.strip()) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert words in err
