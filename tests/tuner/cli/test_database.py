import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.tuner.cli.running import ran
from tuner.store import access, open_store


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECTUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "data"


def test_upgrading_makes_folder_and_tables_and_twice_is_fine(folder: Path) -> None:
    first, again = (ran("db", "upgrade", "--json", "-") for _ in range(2))

    assert first[0] == again[0] == 0
    assert json.loads(first[1]) == json.loads(again[1])
    assert json.loads(first[1])["is_current"] is True
    assert (folder / "spectuner.db").is_file()


def test_downgrading_asks_and_no_answer_changes_nothing() -> None:
    ran("db", "upgrade")

    code, _, _ = ran("db", "downgrade", "base")

    assert code != 0
    assert json.loads(ran("db", "current", "--json", "-")[1])["is_current"] is True


def test_downgrading_to_the_base_empties_the_database() -> None:
    ran("db", "upgrade")

    code, out, _ = ran("db", "downgrade", "base", "--yes", "--json", "-")

    assert code == 0
    assert json.loads(out)["current"] is None
    assert "run `spectuner db upgrade`" in ran("db", "current")[1]


def test_a_token_signs_in_and_is_kept_as_a_hash(folder: Path) -> None:
    ran("db", "upgrade")

    code, out, _ = ran("db", "token", "Ada", "--role", "viewer", "--days", "2", "--json", "-")

    made = json.loads(out)
    store = open_store(f"sqlite:///{folder / 'spectuner.db'}")
    with store.reading() as session:
        token = access.by_secret(session, made["token"], datetime.now(UTC))
    store.close()
    assert code == 0
    assert token is not None
    assert (token.name, token.role) == ("Ada", "viewer")
    assert made["sign_in"] == f"http://127.0.0.1:8400/sign-in?token={made['token']}"
    assert made["token"].encode() not in (folder / "spectuner.db").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["db", "token", "Ada", "--role", "king"], "king"),
        (["db", "upgrade", "9999"], "9999"),
        (["db", "token", " "], "name"),
        (["db", "token", "Ada", "--days", "1e12"], "--days"),
        (["approve", "99999999999999999999"], "number"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    ran("db", "upgrade")

    code, out, err = ran(*arguments)

    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert words in err


def test_a_database_that_is_not_there_is_one_line(folder: Path) -> None:
    code, _, err = ran("db", "token", "Ada")

    assert code == 2
    assert len(err.splitlines()) == 1
    assert str(folder) in err


def test_a_setting_that_cannot_be_used_is_named_by_every_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECTUNER_PORT", "many")

    for command in (["db", "current"], ["doctor"], ["recommend"], ["serve"]):
        code, _, err = ran(*command)
        assert code == 2
        assert "setting port = 'many'" in err
