import fcntl
import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.tuner.cli.running import ran
from tuner.demo.errors import InvalidDataDir
from tuner.demo.options import DemoOptions
from tuner.demo.run import run_demo


def refusal(options: DemoOptions) -> str:
    with pytest.raises(InvalidDataDir) as refused:
        run_demo(options, Console(file=io.StringIO()))
    return str(refused.value)


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        said = refusal(DemoOptions(data_dir=tmp_path, port=8590, engine_port=8591))

    assert "another demo" in said
    assert "--no-keep" in said


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    said = refusal(DemoOptions(data_dir=tmp_path / "file/x", port=8590, engine_port=8591))

    assert str(tmp_path / "file/x") in said


def test_facts_are_kept_under_the_data_folder_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo").write_text("in the way")
    monkeypatch.setenv("SPECTUNER_DATA_DIR", str(tmp_path))

    said = refusal(DemoOptions(port=8590, engine_port=8591))

    assert str(tmp_path / "demo") in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--exit"], "--exit needs --minutes"),
        (["--minutes", "0"], "at least 0.2"),
        (["--traffic", "/nowhere.jsonl"], "/nowhere.jsonl cannot be read"),
        (["--json", "/nowhere/x.json"], "existing folder"),
        (["--port", "8401"], "choose two ports"),
        (["--max-rows", "1"], "max-rows"),
    ],
)
def test_a_demo_that_cannot_run_says_why_in_one_line(arguments: list[str], words: str) -> None:
    given = arguments if "--json" in arguments else [*arguments, "--model", "/nowhere"]

    code, out, err = ran("demo", *given)

    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert words in err
