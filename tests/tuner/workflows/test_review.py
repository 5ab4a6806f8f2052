"""Approve, reject, hold and roll back on a real engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import OFF, Plan, Setting
from policy.types import Advice, Recommendation
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import LOAD_1, LOAD_2, change, plan, said
from tests.fixtures.sites import site_on
from tests.tuner.engine.server.running import RunningEngine
from tuner.errors import (
    BadRequest,
    EngineUnreachable,
    NotEvaluated,
    NotFound,
    OutcomeUnknown,
    PlanConflict,
    PlanRefused,
    StateChanged,
)
from tuner.store import plans, recommendations
from tuner.store.plans import Outcome
from tuner.store.recommendations import State
from tuner.workflows.review import approve, hold, reject, roll_back
from tuner.workflows.site import Site

TOO_LONG = Setting(method=DRAFT_3.method, k=3, drafter="nobody")


def add(site: Site, one: Recommendation | None = None) -> int:
    with site.store.writing() as session:
        current = site.actuator.read_back()
        stored = recommendations.add(
            session, site.engine, one or said(), current, who="recommend", at=site.now()
        )
    assert stored is not None
    return stored.id


def state(site: Site, number: int) -> State:
    with site.store.reading() as session:
        return recommendations.one(session, number).state


def outcomes(site: Site) -> list[Outcome]:
    with site.store.reading() as session:
        return [one.outcome for one in plans.listed(session, site.engine)]


def live(site: Site) -> Plan:
    return site.actuator.read_back()


def test_approving_changes_the_live_plan_and_promotes(site: Site):
    number = add(site, said("chat", change(DRAFT_3), change(LOOKUP_5, load=LOAD_2)))

    done = approve(site, number, who="ann", why="looks good")

    assert done.state is State.PROMOTED
    wanted = plan(("chat", LOAD_1, DRAFT_3), ("chat", LOAD_2, LOOKUP_5))
    assert live(site).digest == wanted.digest
    with site.store.reading() as session:
        history = recommendations.transitions(session, number)
        (applied,) = plans.listed(session, site.engine)
    assert [one.after for one in history] == ["pending", "approved", "staged", "promoted"]
    assert {one.who for one in history[1:]} == {"ann"}
    assert history[1].why == "looks good"
    assert (applied.outcome, applied.recommendation) == (Outcome.APPLIED, number)
    assert applied.read_back_digest == wanted.digest


def test_rolling_back_restores_the_plan_in_force_before(site: Site):
    number = add(site)
    approve(site, number, who="ann")

    done = roll_back(site, number, who="bob", why="acceptance slid")

    assert done.state is State.ROLLED_BACK
    assert live(site).digest == Plan().digest
    with site.store.reading() as session:
        last = recommendations.transitions(session, number)[-1]
    assert (last.who, last.why) == ("bob", "acceptance slid")


def test_rolling_back_leaves_other_routes_alone(site: Site):
    first = add(site, said("chat"))
    approve(site, first, who="ann")
    second = add(site, said("story", change(LOOKUP_5)))
    approve(site, second, who="ann")

    roll_back(site, first, who="ann", why="no")

    assert live(site).digest == plan(("story", LOAD_1, LOOKUP_5)).digest
    assert state(site, second) is State.PROMOTED


@pytest.fixture
def restarted(
    site: Site, migrated_file: Path, tmp_path: Path, fresh_engine: RunningEngine
) -> Iterator[tuple[Site, int]]:
    """The same site in front of an engine that has just started, chat and story promoted."""
    chat, story = add(site, said("chat")), add(site, said("story", change(LOOKUP_5)))
    approve(site, chat, who="ann")
    approve(site, story, who="ann")
    with site_on(
        migrated_file, tmp_path, fresh_engine.url, require_evaluation=False
    ) as in_front_of_fresh:
        yield in_front_of_fresh, chat


def test_approving_right_after_an_engines_restart_keeps_what_other_routes_had(
    restarted: tuple[Site, int],
):
    site, _ = restarted
    number = add(site, said("code"))

    approve(site, number, who="bob")

    wanted = [("chat", LOAD_1, DRAFT_3), ("code", LOAD_1, DRAFT_3), ("story", LOAD_1, LOOKUP_5)]
    assert live(site).digest == plan(*wanted).digest


def test_rolling_back_right_after_an_engines_restart_keeps_what_other_routes_had(
    restarted: tuple[Site, int],
):
    site, chat = restarted

    roll_back(site, chat, who="bob", why="no")

    assert live(site).digest == plan(("story", LOAD_1, LOOKUP_5)).digest
    assert state(site, chat) is State.ROLLED_BACK


def test_a_second_change_of_a_route_replaces_the_first_and_rolls_back_to_it(site: Site):
    first = add(site, said("chat", change(DRAFT_3)))
    approve(site, first, who="ann")
    second = add(site, said("chat", change(LOOKUP_5, DRAFT_3)))
    approve(site, second, who="ann")
    assert state(site, first) is State.SUPERSEDED

    roll_back(site, second, who="ann", why="no")

    assert live(site).digest == plan(("chat", LOAD_1, DRAFT_3)).digest


def test_rejecting_and_holding_leave_the_plan_alone(site: Site):
    number = add(site)

    assert hold(site, number, who="ann", why="after the sale").state is State.HELD
    assert reject(site, number, who="ann", why="too risky").state is State.REJECTED
    assert live(site).digest == Plan().digest
    with pytest.raises(StateChanged, match="is rejected and cannot become approved"):
        approve(site, number, who="ann")


def test_a_held_recommendation_can_be_approved(site: Site):
    number = add(site)
    hold(site, number, who="ann", why="later")

    assert approve(site, number, who="ann").state is State.PROMOTED


def test_what_recommends_no_change_cannot_be_approved(site: Site):
    number = add(site, said("chat", change(OFF), advice=Advice.NO_CHANGE))

    with pytest.raises(BadRequest, match="says no_change for route chat"):
        approve(site, number, who="ann")


def test_only_a_promoted_one_can_be_rolled_back(site: Site):
    with pytest.raises(StateChanged, match="is pending; only a promoted one"):
        roll_back(site, add(site), who="ann", why="no")
    with pytest.raises(NotFound, match="no recommendation 99"):
        roll_back(site, 99, who="ann", why="no")


def test_a_refused_plan_leaves_state_and_plan_as_they_were(site: Site):
    number = add(site, said("chat", change(TOO_LONG)))

    with pytest.raises(PlanRefused, match="nobody"):
        approve(site, number, who="ann")

    assert state(site, number) is State.PENDING
    assert live(site).digest == Plan().digest
    assert outcomes(site) == [Outcome.FAILED]
    with site.store.reading() as session:
        history = recommendations.transitions(session, number)
    assert [one.after for one in history] == ["pending", "approved", "pending"]
    assert "the plan before stays in force" in history[-1].why


def test_a_route_that_runs_something_else_by_now_is_not_overwritten(site: Site):
    number = add(site)
    site.actuator.apply(plan(("chat", LOAD_1, LOOKUP_5)), live(site).digest)

    with pytest.raises(StateChanged, match="made for off on route chat at load 1, but prompt_"):
        approve(site, number, who="ann")

    assert state(site, number) is State.PENDING


def test_a_plan_changed_in_the_middle_is_a_conflict(site: Site):
    number = add(site)

    class Meddling:
        """Lets somebody else change the plan just before ours is sent."""

        engine = site.engine

        def read_back(self) -> Plan:
            return site.actuator.read_back()

        def apply(self, wanted: Plan, expected: str) -> object:
            site.actuator.apply(plan(("story", LOAD_1, LOOKUP_5)), live(site).digest)
            return site.actuator.apply(wanted, expected)

    with pytest.raises(PlanConflict, match=r"not .* for which the change was made"):
        approve(replace(site, actuator=Meddling()), number, who="ann")  # type: ignore[arg-type]

    assert state(site, number) is State.PENDING
    assert live(site).digest == plan(("story", LOAD_1, LOOKUP_5)).digest


def test_an_engine_that_is_away_changes_nothing(migrated_file: Path, tmp_path: Path, site: Site):
    number = add(site)
    with site_on(migrated_file, tmp_path, "http://127.0.0.1:9", require_evaluation=False) as away:
        with pytest.raises(EngineUnreachable, match="did not answer"):
            approve(away, number, who="ann")

        assert state(away, number) is State.PENDING


class FallsSilent:
    """Passes the plan on or not, and then answers nothing, for so many calls."""

    def __init__(self, site: Site, *, is_passed_on: bool, silent_calls: int) -> None:
        self.engine = site.engine
        self._site, self._is_passed_on = site, is_passed_on
        self._silent_calls = silent_calls
        self._is_silent = False

    def read_back(self) -> Plan:
        if self._is_silent and self._silent_calls > 0:
            self._silent_calls -= 1
            raise EngineUnreachable("no answer")
        return self._site.actuator.read_back()

    def apply(self, wanted: Plan, expected: str) -> object:
        if self._is_passed_on:
            self._site.actuator.apply(wanted, expected)
        self._is_silent = True
        raise EngineUnreachable("the answer got lost")


def test_a_lost_answer_is_looked_up(site: Site):
    number = add(site)
    deaf = FallsSilent(site, is_passed_on=True, silent_calls=0)

    done = approve(replace(site, actuator=deaf), number, who="ann")  # type: ignore[arg-type]

    assert done.state is State.PROMOTED


def test_an_engine_that_stays_silent_leaves_the_approval_to_be_settled(site: Site):
    number = add(site)
    deaf = FallsSilent(site, is_passed_on=True, silent_calls=9)

    with pytest.raises(OutcomeUnknown, match="settled when it answers again"):
        approve(replace(site, actuator=deaf), number, who="ann")  # type: ignore[arg-type]

    assert state(site, number) is State.APPROVED
    assert outcomes(site) == [Outcome.STARTED]


def test_of_operators_who_approve_at_once_one_acts(site: Site):
    number = add(site)
    gate = threading.Barrier(4)
    results: list[str] = []

    def press() -> None:
        gate.wait()
        try:
            results.append(approve(site, number, who="ann").state)
        except StateChanged:
            results.append("too late")

    threads = [threading.Thread(target=press) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results) == ["promoted", "too late", "too late", "too late"]
    assert outcomes(site) == [Outcome.APPLIED]


def test_without_an_evaluation_it_says_what_is_missing(
    migrated_file: Path, tmp_path: Path, engine: RunningEngine
):
    with site_on(migrated_file, tmp_path, engine.url, require_evaluation=True) as strict:
        number = add(strict)

        with pytest.raises(NotEvaluated, match="draft_model k=3 on chat has no evaluation"):
            approve(strict, number, who="ann")

        assert state(strict, number) is State.PENDING
        assert live(strict).digest == Plan().digest


def test_turning_speculation_off_needs_no_evaluation(
    migrated_file: Path, tmp_path: Path, engine: RunningEngine
):
    with site_on(migrated_file, tmp_path, engine.url, require_evaluation=True) as strict:
        strict.actuator.apply(plan(("chat", LOAD_1, DRAFT_3)), live(strict).digest)
        number = add(strict, said("chat", change(OFF, DRAFT_3)))

        assert approve(strict, number, who="ann").state is State.PROMOTED
