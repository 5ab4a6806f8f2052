"""``spectuner explain`` and ``recommend`` on what is stored, without an engine."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.records import Plan
from policy.pool_advice import PoolAdvice
from policy.types import Evidence, Interval, Trial, TurningPoint
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import LOAD_1, change, said
from tests.tuner.cli.running import ran
from tuner.settings import load_settings
from tuner.store import open_store, recommendations
from tuner.store.recommendations import State

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of a recommendation for the route chat; the route other has its own."""
    monkeypatch.setenv("SPECTUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    ran("db", "upgrade")
    changed = replace(change(), runner_up=(LOOKUP_5, 0.1), runner_up_reason="it gives -21.0%")
    one = replace(
        said("chat", changed),
        turning_points=(
            TurningPoint(
                load=LOAD_1,
                setting=DRAFT_3,
                tokens_per_pass=1.8,
                needed_tokens_per_pass=1.3,
                acceptance=0.6,
                needed_acceptance=0.25,
            ),
        ),
        trials=(
            Trial(
                setting=LOOKUP_5,
                by=Evidence.LIVE,
                load=LOAD_1,
                most_gain=0.12,
                most_token_share=0.02,
            ),
        ),
    )
    pool = PoolAdvice(
        load=LOAD_1,
        leaves=("chat",),
        settings={"other": DRAFT_3},
        gain=Interval(low=0.03, mean=0.041, high=0.052),
        reason="At load 1 chat runs better in a pool without speculation: +4.1%.",
    )
    one = replace(one, pools=(pool,), reasons=(*one.reasons, pool.reason))
    one = replace(one, curves=(replace(one.curves[0], shares={Evidence.LIVE: 0.75}),))
    store = open_store(load_settings().database_url)
    with store.writing() as session:
        first = recommendations.add(session, "bundled", one, Plan(), who="recommend", at=NOW)
        recommendations.add(session, "bundled", said("other"), Plan(), who="recommend", at=NOW)
    store.close()
    assert first is not None
    return first.id


def promote(number: int) -> None:
    store = open_store(load_settings().database_url)
    with store.writing() as session:
        for state in (State.APPROVED, State.STAGED, State.PROMOTED):
            recommendations.move(session, number, state, who="ann", at=NOW, why="it pays")
    store.close()


def test_a_recommendation_is_explained_with_all_that_stands_behind_it(stored: int) -> None:
    code, out, err = ran("explain", "chat")

    assert (code, err) == (0, "")
    assert f"Recommendation {stored}, pending: change for chat" in out
    assert f"At load 1 {LOOKUP_5.label}: it gives -21.0%." in out
    assert "75% live" in out
    assert "chat runs better in a pool without speculation: +4.1%." in out
    assert "equals off at 1.30 tokens a pass (1.80 now), a first token kept in 25% (60% now)" in out
    assert (
        "by live on at most 2% of tokens, which may bring up to +12.0% engine total at load 1."
        in out
    )
    assert "+40% (+30% to +50%)" in out
    assert ran("explain", str(stored))[1] == out


def test_its_figures_are_those_of_recommend(stored: int) -> None:
    explained = json.loads(ran("explain", "chat", "--json", "-")[1])
    listed = json.loads(ran("recommend", "--stored", "--route", "chat", "--json", "-")[1])

    assert explained == listed["recommendations"][0]
    assert explained["id"] == stored
    assert explained["changes"][0]["runner_up_reason"] == "it gives -21.0%"
    assert explained["curves"][0]["shares"] == {"live": 0.75}
    assert explained["turning_points"][0]["needed_acceptance"] == 0.25
    assert explained["trials"][0]["by"] == "live"
    assert explained["changes"][0]["lost_s"] == 0
    (advice,) = explained["pools"]
    assert (advice["leaves"], advice["gain"]) == (["chat"], [0.03, 0.041, 0.052])
    assert advice["settings"]["other"] == DRAFT_3.to_dict()


def test_what_a_recommendation_brought_is_shown_once_it_is_in_force(stored: int) -> None:
    assert "realised" not in ran("explain", "chat")[1]
    promote(stored)

    code, out, _ = ran("explain", "chat")
    figures = json.loads(ran("explain", "chat", "--json", "-")[1])["realised"]

    assert code == 0
    assert "Predicted and realised" in out
    assert "not enough data yet" in out
    assert "this is no experiment" in out
    assert "realised" in ran("recommend", "--stored", "--route", "chat")[1]
    (level,) = figures["levels"]
    assert (level["load"], level["predicted"], level["realised"]) == ("1", [60.0, 75.0, 90.0], None)
    assert figures["since_s"] == NOW.timestamp()


@pytest.mark.parametrize("command", [("explain",), ("recommend", "--stored", "--route")])
def test_a_route_that_nobody_knows_is_refused_in_one_line(command: tuple[str, ...]) -> None:
    code, out, err = ran(*command, "chta")

    assert (code, out) == (2, "")
    assert "no route is called 'chta'; known are: chat, other" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("number", ["999", "9" * 30])
def test_a_number_that_nobody_gave_is_refused(number: str) -> None:
    code, _, err = ran("explain", number)

    assert code == 2
    assert f"no recommendation {number}" in err


def test_a_route_for_which_no_live_trial_is_proposed_gets_none() -> None:
    code, out, err = ran("trial", "other")

    assert (code, out) == (1, "")
    assert "nothing is proposed for a live trial on other; see spectuner explain other" in err
