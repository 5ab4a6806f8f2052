"""What ``spectuner approve | reject | hold | rollback`` refuse before anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.facts import LOOKUP_5
from tests.fixtures.said import PLAIN, change, said
from tests.tuner.cli.running import ran
from tests.tuner.cli.test_drift import NOW
from tuner.store import migrating, open_store, recommendations
from tuner.store.recommendations import State

HALF_A_CHARACTER = "\udcff"


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A store in which the first of two recommendations is promoted."""
    url = f"sqlite:///{tmp_path / 'spectuner.db'}"
    migrating.upgrade(url)
    store = open_store(url)
    with store.writing() as session:
        for route in ("chat", "story"):
            recommendations.add(session, "bundled", said(route), PLAIN, who="recommend", at=NOW)
        for state in (State.APPROVED, State.STAGED, State.PROMOTED):
            recommendations.move(session, 1, state, who="ann", at=NOW, why="good")
    store.close()
    path = tmp_path / "spectuner.toml"
    path.write_text(f'database_url = "{url}"\nengine_url = "http://127.0.0.1:9"\n')
    return str(path)


@pytest.mark.parametrize(
    "act", [("approve", "2"), ("reject", "2"), ("hold", "2"), ("rollback", "1")]
)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--why", "x" * 501), "a reason has 1 to 500 characters, this one has 501"),
        (("--why", f"a{HALF_A_CHARACTER}"), "a reason is plain text; leave out '\\udcff'"),
        (("--who", "x" * 129), "must have at most 128 printable characters"),
        (("--who", "two\nlines"), "must have at most 128 printable characters"),
    ],
)
def test_what_cannot_be_kept_of_a_decision_is_refused_in_one_line(
    config: str, act: tuple[str, str], arguments: tuple[str, str], message: str
):
    code, _, err = ran(*act, *arguments, "--config", config)

    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_several_are_approved_as_a_set_or_one_at_a_time(config: str):
    code, _, err = ran("approve", "1", "2", "--config", config)

    assert code == 2
    assert "approve one at a time, or 1 2 as one set with --together" in err


def test_a_superseded_recommendation_names_its_successor_in_one_line(config: str, tmp_path: Path):
    store = open_store(f"sqlite:///{tmp_path / 'spectuner.db'}")
    with store.writing() as session:
        newer = said("story", change(LOOKUP_5))
        recommendations.add(session, "bundled", newer, PLAIN, who="recommend", at=NOW)
    store.close()

    for act in (("approve", "2"), ("approve", "2", "3", "--together")):
        code, _, err = ran(*act, "--config", config)

        assert code == 2
        assert "recommendation 2 is superseded by #3, open it" in err
        assert len(err.splitlines()) == 1
    assert "It is superseded by #3, open it." in ran("explain", "2", "--config", config)[1]
