from pathlib import Path

import pytest

from tuner.demo.options import DemoOptions
from tuner.demo.stack import demo_settings, environment_of
from tuner.errors import BadRequest
from tuner.settings import load_settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"exits": True}, "--exit needs --minutes"),
        ({"minutes": 0.0}, "--minutes must be at least"),
        ({"port": 8500, "engine_port": 8500}, "both 8500"),
        ({"keeps": False, "data_dir": Path("/tmp/x")}, "throw-away"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    given: dict[str, object], words: str
) -> None:
    with pytest.raises(BadRequest, match=words):
        DemoOptions(**given)  # type: ignore[arg-type]


def test_the_demo_keeps_prompts_on_loopback_and_reviews_without_a_gate(tmp_path: Path) -> None:
    settings = demo_settings(DemoOptions(port=8500, engine_port=8501), tmp_path)

    assert settings.host == "127.0.0.1"
    assert settings.public_url == "http://127.0.0.1:8500"
    assert settings.engine_url == "http://127.0.0.1:8501"
    assert settings.capture_enabled
    assert settings.require_evaluation
    assert settings.gate_requests == settings.replay_requests == 20


def test_a_child_reads_the_very_settings_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = demo_settings(DemoOptions(), tmp_path)
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)

    assert load_settings() == settings
