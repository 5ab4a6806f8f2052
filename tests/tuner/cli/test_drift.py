"""``spectuner drift`` and ``spectuner evaluate-plan`` on a store without an engine."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.records import Plan
from policy.drift_alarms import Alarm, AlarmKind
from tests.tuner.cli.running import ran
from tuner.store import audit, drift, migrating, open_store

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LOOP = Alarm(
    kind=AlarmKind.LOOP,
    route="chat",
    since_s=NOW.timestamp() - 60,
    seen_s=NOW.timestamp(),
    saw="All drafts were kept.",
    advice="Read answers.",
    figures={"acceptance_rate": 1.0},
)


@pytest.fixture
def config(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'spectuner.db'}"
    migrating.upgrade(url)
    store = open_store(url)
    with store.writing() as session:
        drift.note_alarms(session, "bundled", [LOOP], NOW)
    store.close()
    path = tmp_path / "spectuner.toml"
    path.write_text(f'database_url = "{url}"\nengine_url = "http://127.0.0.1:9"\n')
    return str(path)


def test_alarms_are_listed_with_what_to_do(config: str):
    code, out, _ = ran("drift", "--config", config)

    assert code == 0
    assert "All drafts were kept." in out
    assert "Read answers." in out


def test_alarms_of_the_whole_engine_concern_every_route(config: str):
    store = open_store(f"sqlite:///{Path(config).parent / 'spectuner.db'}")
    fault = replace(LOOP, kind=AlarmKind.COUNTER_FAULT, route=None, saw="It starts again and again")
    with store.writing() as session:
        drift.note_alarms(session, "bundled", [fault], NOW)
    store.close()

    assert "It starts again and again" in ran("drift", "--config", config, "--route", "chat")[1]


def test_a_route_that_nobody_knows_has_no_clean_bill(config: str):
    code, out, err = ran("drift", "--config", config, "--route", "chta")

    assert (code, out) == (2, "")
    assert "no route is called 'chta'" in err


def test_an_acknowledged_alarm_is_listed_only_when_asked_for(config: str):
    code, _, err = ran("drift", "--config", config, "--acknowledge", "1")
    assert (code, "--why" in err) == (2, True)

    said = ("--acknowledge", "1", "--why", "copies by design", "--who", "ann")
    assert ran("drift", "--config", config, *said)[0] == 0

    _, out, _ = ran("drift", "--config", config, "--json", "-")
    assert json.loads(out) == {"alarms": []}
    _, out, _ = ran("drift", "--config", config, "--all", "--json", "-")
    (alarm,) = json.loads(out)["alarms"]
    assert (alarm["kind"], alarm["stops_decisions"]) == ("loop", False)
    assert (alarm["acknowledged_by"], alarm["acknowledged_why"]) == ("ann", "copies by design")


def test_acknowledging_is_audited_and_its_reason_is_bounded(config: str):
    said = ("drift", "--config", config, "--acknowledge", "1", "--who", "ann", "--why")
    code, _, err = ran(*said, "x" * 501)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "1 to 500 characters, this one has 501" in err
    assert ran(*said, "copies by design")[0] == 0

    store = open_store(f"sqlite:///{Path(config).parent / 'spectuner.db'}")
    with store.reading() as session:
        (entry,) = audit.listed(session)
    store.close()
    assert (entry.who, entry.action, entry.detail) == (
        "ann",
        "drift.acknowledge",
        "copies by design",
    )


def test_an_alarm_that_does_not_exist_is_one_line(config: str):
    code, _, err = ran("drift", "--config", config, "--acknowledge", "7", "--why", "x")

    assert code == 2
    assert "no drift alarm 7" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name one of"),
        (("--setting", "off", "--recommendation", "1"), "name one of"),
        (("--plan", "nowhere.json"), "cannot be read"),
        (("--recommendation", "0"), "--recommendation"),
        (("--recommendation", "1", "--route", "chat"), "go with --setting"),
        (("--setting", "off", "--hours", "inf"), "--hours"),
    ],
)
def test_a_plan_that_cannot_be_valued_is_one_line(
    config: str, arguments: tuple[str, ...], said: str
):
    code, _, err = ran("evaluate-plan", "--config", config, *arguments)

    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_plan_that_is_no_text_is_one_line(config: str, tmp_path: Path):
    plan = tmp_path / "plan.json"
    plan.write_bytes(b"\xff\xfe")

    code, _, err = ran("evaluate-plan", "--config", config, "--plan", str(plan))

    assert code == 2
    assert "is not JSON" in err
    assert len(err.splitlines()) == 1


def test_without_logged_windows_a_plan_is_not_valued(config: str, tmp_path: Path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(Plan().to_dict()))

    code, _, err = ran("evaluate-plan", "--config", config, "--plan", str(plan))

    assert code == 2
    assert "no closed window" in err
