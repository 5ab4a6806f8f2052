import json
import socket
from pathlib import Path

import pytest

from collectors.records import Method
from tests.tuner.cli.running import ran
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.cli.checks import (
    Check,
    Verdict,
    browser_check,
    database_check,
    engine_check,
    memory_check,
    model_check,
    packages_check,
    port_check,
)
from tuner.cli.memory import DEFAULT_MAX_CONTEXT, DEFAULT_MAX_ROWS
from tuner.demo.preparing import prepare_database
from tuner.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path / "data", engine_url="http://127.0.0.1:9")


def test_every_check_that_is_not_well_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECTUNER_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("SPECTUNER_ENGINE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SPECTUNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")

    _, out, _ = ran("doctor", "--json", "-")

    checks = json.loads(out)["checks"]
    assert {check["name"] for check in checks} >= {
        "python",
        "packages",
        "bundled model",
        "memory",
        "device",
        "console port",
        "engine port",
        "database",
        "engine",
        "chromium",
    }
    assert [check for check in checks if check["verdict"] != "ok" and not check["fix"]] == []
    assert all(len(check["detail"].splitlines()) == 1 for check in checks)


def test_the_database_is_missing_then_there(settings: Settings) -> None:
    assert database_check(settings).verdict is Verdict.WARNING
    prepare_database(settings)
    assert database_check(settings).verdict is Verdict.OK


def test_an_engine_that_does_not_answer_is_a_note(settings: Settings) -> None:
    check = engine_check(settings)

    assert check.verdict is Verdict.WARNING
    assert "http://127.0.0.1:9" in check.detail
    assert "spectuner engine" in check.fix


def test_a_taken_port_names_the_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check = port_check("engine port", "127.0.0.1", port, "--engine-port")

    assert check.verdict is Verdict.WARNING
    assert str(port) in check.detail
    assert "--engine-port" in check.fix
    assert port_check("engine port", "127.0.0.1", port, "--engine-port").verdict is Verdict.OK


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model in the place of the bundled one."""
    model = write_tiny_model(tmp_path / "model")
    monkeypatch.setattr("tuner.engine.model.bundled_model.cached_bundled_model", lambda: model)
    monkeypatch.setattr("tuner.engine.memory_need.resolve_model", lambda name: model)
    return model


@pytest.mark.usefixtures("prepared")
def test_the_memory_of_slots_is_stated_and_what_it_takes_to_fit() -> None:
    fitting = memory_check(methods=(Method.PROMPT_LOOKUP,))
    refused = memory_check(max_rows=1_000_000_000, methods=(Method.PROMPT_LOOKUP,))

    assert fitting.verdict is Verdict.OK
    # 32 rows of 1024 tokens: keys and values of two layers, each 2 heads of 16 numbers.
    assert f"KV slots {32 * 1024 * 2 * 2 * 2 * 16 * 4 / 2**20:.0f} MiB" in fitting.detail
    assert "draft slots 0 MiB" in fitting.detail
    assert refused.verdict is Verdict.FAILED
    for option in ("--max-rows", "--max-context", "--methods"):
        assert option in refused.fix


@pytest.mark.usefixtures("prepared")
def test_the_doctor_takes_the_sizes_that_an_engine_would_be_started_with() -> None:
    sizes = ("--max-rows", "64", "--max-context", "512", "--methods", "prompt_lookup")
    _, out, _ = ran("doctor", *sizes, "--json", "-")

    (memory,) = [check for check in json.loads(out)["checks"] if check["name"] == "memory"]
    assert f"KV slots {64 * 512 * 2 * 2 * 2 * 16 * 4 / 2**20:.0f} MiB" in memory["detail"]


def test_the_defaults_counted_are_those_of_the_engine() -> None:
    from tuner.engine.limits import EngineLimits

    limits = EngineLimits()

    assert (limits.max_rows, limits.max_context_tokens) == (DEFAULT_MAX_ROWS, DEFAULT_MAX_CONTEXT)


def test_the_bundled_model_is_unprepared_in_an_empty_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECTUNER_CACHE_DIR", str(tmp_path))

    check = model_check()

    assert check.verdict is not Verdict.OK
    assert check.fix or "pip install" in check.detail


def test_packages_and_browser_are_looked_up_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert packages_check().verdict is Verdict.OK
    monkeypatch.setenv("PATH", "")
    assert browser_check().verdict is Verdict.WARNING


def test_a_check_in_json_has_four_words() -> None:
    check = Check(name="a", verdict=Verdict.OK, detail="b")

    assert check.to_dict() == {"name": "a", "verdict": "ok", "detail": "b", "fix": ""}
