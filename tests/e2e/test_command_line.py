"""Commands against a running engine: replay, divergence, recommend, review, doctor."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_demo import PATIENCE_S, Demo, running, tiny, wait_for
from tests.tuner.cli.running import ran

__all__ = ["tiny"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running(tiny, tmp_path_factory.mktemp("demo"), "--no-approve") as demo:
        wait_for(lambda: "Exploration" in demo.output, demo)
        yield demo
        demo.process.terminate()
        demo.process.wait(PATIENCE_S)


@pytest.fixture(scope="module", autouse=True)
def environment(demo: Demo) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECTUNER_DATA_DIR", str(demo.folder))
        patch.setenv("SPECTUNER_ENGINE_URL", f"http://127.0.0.1:{demo.engine_port}")
        patch.setenv("SPECTUNER_PORT", str(demo.port))
        patch.setenv("COLUMNS", "160")
        yield patch


def test_replay_pairs_captured_requests_and_reads_the_setting_back() -> None:
    arguments = ("draft_model:3", "--requests", "3", "--max-tokens", "12", "--json", "-")

    code, out, err = ran("replay", *arguments)

    figures = json.loads(out)
    assert code == 0, err
    assert set(figures) == {"id", "base", "other", "summary", "routes", "pairs"}
    assert figures["summary"]["pairs"] == len(figures["pairs"]) > 0
    assert {pair["other"]["setting"]["method"] for pair in figures["pairs"]} == {"draft_model"}
    assert {pair["base"]["setting"]["method"] for pair in figures["pairs"]} == {"off"}
    assert figures["summary"]["other_tokens_per_pass"] > 1.5
    assert {one["verdict"] for one in figures["routes"]} == {"too_few_pairs"}
    total = len(figures["pairs"])
    assert f"{total} of {figures['summary']['planned_pairs']} pairs" in err.splitlines()


def test_divergence_finds_the_same_tokens_with_speculation_as_without() -> None:
    code, out, err = ran("divergence", "draft_model:5", "--requests", "4", "--json", "-")

    tested = json.loads(out)["summary"]["tested"]
    assert code == 0, err
    assert tested["identical"] + tested["near_tie"] == sum(tested.values()) > 0


def test_recommend_lists_every_route_with_a_number() -> None:
    code, out, err = ran("recommend", "--json", "-")

    figures = json.loads(out)
    assert code == 0, err
    assert set(figures) == {"silence_reason", "recommendations"}
    assert figures["recommendations"]
    assert all(entry["advice"] for entry in figures["recommendations"])
    assert "Recommendations" in ran("recommend", "--stored")[1]


def test_rejecting_closes_a_recommendation_and_twice_is_refused() -> None:
    listed = json.loads(ran("recommend", "--json", "-")[1])["recommendations"]
    number = str(listed[0]["id"])

    first = ran("reject", number, "--why", "too early", "--who", "Ada", "--json", "-")
    again = ran("reject", number)

    assert first[0] == 0, first[2]
    assert json.loads(first[1])["state"] == "rejected"
    assert again[0] == 2
    assert "rejected" in again[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("approve", "999"), "no recommendation 999"),
        (("rollback", "999"), "no recommendation 999"),
        (("replay", "draft_model:99"), "1 to 16"),
        (("replay", "draft-model:3"), "unknown method 'draft-model'"),
        (("replay", "draft_model:three"), "write off, draft_model:3"),
        (("replay", "draft_model:3", "--route", "nowhere"), "nowhere"),
        (("replay", '{"method":'), "not JSON"),
        (("divergence", "draft_model:0"), "1 to 16"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    code, _, err = ran(*arguments)

    assert code == 2
    assert len(err.splitlines()) == 1, err
    assert words in err


def test_an_engine_that_is_gone_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECTUNER_ENGINE_URL", "http://127.0.0.1:9")

    code, _, err = ran("replay", "draft_model:3")

    assert code == 1
    assert len(err.splitlines()) == 1
    assert "http://127.0.0.1:9" in err


def test_doctor_finds_engine_and_database_well() -> None:
    _, out, _ = ran("doctor", "--json", "-")

    verdicts = {check["name"]: check["verdict"] for check in json.loads(out)["checks"]}
    assert verdicts["engine"] == verdicts["database"] == "ok"
    assert verdicts["console port"] == "warning"
