"""Apply, read back, refuse: against a real engine."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from collectors.http import EngineAddress
from collectors.records import Method, Plan, Setting
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.player import Player, playing
from tests.fixtures.said import LOAD_1, plan
from tests.tuner.engine.server.running import RunningEngine, running_engine, tiny_settings
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.actuators.bundled import BundledActuator
from tuner.errors import EngineUnreachable, PlanConflict, PlanRefused, ReadBackMismatch

WANTED = plan(("chat", LOAD_1, DRAFT_3))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    model = write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny")
    with running_engine(tiny_settings(model, routes=("chat",))) as running:
        yield running


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60, trust_env=False) as opened:
        yield opened


@pytest.fixture
def actuator(engine: RunningEngine, client: httpx.Client) -> BundledActuator:
    engine.http.put("/spec/plan", json=Plan().to_dict()).raise_for_status()
    return actuator_at(engine.url, client)


def actuator_at(url: str, client: httpx.Client) -> BundledActuator:
    return BundledActuator(engine="bundled", address=EngineAddress(base_url=url, client=client))


def test_a_plan_is_applied_and_read_back(actuator: BundledActuator):
    before = actuator.read_back()

    applied = actuator.apply(WANTED, before.digest)

    assert applied.before == before
    assert applied.live.digest == WANTED.digest == actuator.read_back().digest
    assert applied.live.version == before.version + 1


def test_a_plan_made_for_another_one_is_a_conflict(actuator: BundledActuator):
    with pytest.raises(PlanConflict, match="not feed for which the change was made"):
        actuator.apply(WANTED, "feed")

    assert actuator.read_back().digest == Plan().digest


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (plan(("nowhere", LOAD_1, DRAFT_3)), "unknown route 'nowhere'; known routes"),
        (
            Plan(default=Setting(method=Method.DRAFT_MODEL, k=3, drafter="x")),
            "drafter 'x' is not loaded",
        ),
    ],
)
def test_what_the_engine_cannot_run_is_refused_with_its_reason(
    actuator: BundledActuator, wanted: Plan, message: str
):
    with pytest.raises(PlanRefused, match=message) as caught:
        actuator.apply(wanted, Plan().digest)

    assert "\n" not in str(caught.value)
    assert actuator.read_back().digest == Plan().digest


def test_an_engine_that_is_away_can_be_tried_again(client: httpx.Client):
    away = actuator_at("http://127.0.0.1:9", client)

    with pytest.raises(EngineUnreachable) as caught:
        away.apply(WANTED, Plan().digest)

    assert caught.value.is_retryable


def test_a_plan_that_is_not_live_afterwards_is_named_with_both_digests(client: httpx.Client):
    with playing(Player()) as player:
        player.overrides["/spec/plan"] = (200, Plan().to_dict())

        with pytest.raises(ReadBackMismatch) as caught:
            actuator_at(player.url, client).apply(WANTED, Plan().digest)

    assert WANTED.digest in str(caught.value)
    assert Plan().digest in str(caught.value)


def test_what_is_no_plan_is_named(client: httpx.Client):
    with playing(Player()) as player:
        player.overrides["/spec/plan"] = (200, {"version": -1})

        with pytest.raises(PlanRefused, match="cannot be read: plan version must be >= 0"):
            actuator_at(player.url, client).read_back()


def test_applying_the_plan_in_force_again_is_fine(actuator: BundledActuator):
    twice = plan(("chat", LOAD_1, LOOKUP_5))
    actuator.apply(twice, Plan().digest)

    assert actuator.apply(twice, twice.digest).live.digest == twice.digest
