"""``spectuner autopilot`` on a store without an engine: what it shows and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tuner.cli.running import ran
from tuner.store import migrating


@pytest.fixture
def config(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'spectuner.db'}"
    migrating.upgrade(url)
    path = tmp_path / "spectuner.toml"
    path.write_text(f'database_url = "{url}"\nengine_url = "http://127.0.0.1:9"\n')
    return str(path)


def test_status_says_that_nothing_is_on_autopilot(config: str):
    code, out, err = ran("autopilot", "status", "--config", config, "--json", "-")

    assert (code, json.loads(out)) == (0, {"routes": []})
    assert "no route has an envelope; the control loop does not run" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "magic"), "--method magic: no such method; known are: draft_model"),
        (("--method", "suffix", "--load", "3"), "--load 3: no such load level; known are: 1, 2"),
        (("--method", "suffix", "--max-k", "0"), "max_k must be 1 to 64, got 0"),
        (("--method", "suffix", "--days", "inf"), "an envelope needs a moment of expiry"),
    ],
)
def test_bounds_that_mean_nothing_are_refused_in_one_line(
    config: str, arguments: tuple[str, ...], message: str
):
    code, _, err = ran("autopilot", "approve", "chat", *arguments, "--config", config)

    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_route_without_an_envelope_cannot_be_stopped(config: str):
    code, _, err = ran("autopilot", "stop", "--route", "chat", "--config", config)

    assert code != 0
    assert "route 'chat' has no envelope; approve one" in err
