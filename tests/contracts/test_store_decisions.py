"""Recommendations, their states and the plans behind them, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from collectors.records import OFF, Plan
from policy.types import Advice, Recommendation
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import LOAD_1, LOAD_2, PLAIN, change, plan, said
from tuner.errors import NotFound, StateChanged, StoreConflict
from tuner.store import Store, evidence, plans, recommendations
from tuner.store.plans import Outcome, PlanChange
from tuner.store.recommendations import NEXT_STATES, State, StoredRecommendation
from tuner.store.schema import RecommendationRow

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def add(
    store: Store, one: Recommendation, current: Plan = PLAIN, at: datetime = NOW
) -> StoredRecommendation | None:
    with store.writing() as session:
        return recommendations.add(session, "bundled", one, current, who="recommend", at=at)


def added(store: Store, one: Recommendation | None = None) -> StoredRecommendation:
    stored = add(store, one or said())
    assert stored is not None
    return stored


def move(store: Store, number: int, *states: State, who: str = "ann") -> None:
    with store.writing() as session:
        for state in states:
            recommendations.move(session, number, state, who=who, at=LATER, why="because")


def state_of(store: Store, number: int) -> State:
    with store.reading() as session:
        return recommendations.one(session, number).state


def test_a_recommendation_comes_back_as_it_was_said(store: Store):
    stored = added(store, said("chat", change(), change(LOOKUP_5, DRAFT_3, LOAD_2)))

    with store.reading() as session:
        assert recommendations.one(session, stored.id) == stored
        history = recommendations.transitions(session, stored.id)
    assert stored.said == said("chat", change(), change(LOOKUP_5, DRAFT_3, LOAD_2))
    assert stored.plan_digest == PLAIN.digest
    assert [(one.before, one.after, one.who) for one in history] == [
        (None, State.PENDING, "recommend")
    ]


def test_no_recommendation_is_an_error_that_names_the_number(store: Store):
    with pytest.raises(NotFound, match="no recommendation 7"), store.reading() as session:
        recommendations.one(session, 7)


def test_every_change_of_state_is_a_row_with_who_when_and_why(store: Store):
    stored = added(store)

    move(store, stored.id, State.APPROVED, State.STAGED, State.PROMOTED, State.ROLLED_BACK)

    with store.reading() as session:
        history = recommendations.transitions(session, stored.id)
    assert [one.after for one in history[1:]] == [
        State.APPROVED,
        State.STAGED,
        State.PROMOTED,
        State.ROLLED_BACK,
    ]
    assert {(one.who, one.at, one.why) for one in history[1:]} == {("ann", LATER, "because")}


@pytest.mark.parametrize("state", [state for state in State if state not in NEXT_STATES])
def test_exits_are_final(store: Store, state: State):
    stored = added(store)
    if state is State.ROLLED_BACK:
        move(store, stored.id, State.APPROVED, State.STAGED)
    move(store, stored.id, state)

    with pytest.raises(StateChanged, match="it is closed"):
        move(store, stored.id, State.APPROVED)


def test_a_step_that_is_not_legal_names_the_legal_ones(store: Store):
    stored = added(store)

    with pytest.raises(StateChanged, match=r"is pending and cannot become promoted.*approved"):
        move(store, stored.id, State.PROMOTED)


def test_a_step_from_a_state_that_no_longer_holds_is_refused(store: Store):
    stored = added(store)
    move(store, stored.id, State.HELD)

    with (
        pytest.raises(StateChanged, match="is held by now, not pending"),
        store.writing() as session,
    ):
        recommendations.move(
            session,
            stored.id,
            State.REJECTED,
            who="bob",
            at=LATER,
            why="",
            expected=State.PENDING,
        )


def test_the_same_proposal_said_again_updates_the_pending_row_in_place(store: Store):
    first = added(store, said("chat", change(gain=0.4)))

    again = add(store, said("chat", change(gain=0.49)), at=LATER)

    assert again is not None
    assert (again.id, again.revision) == (first.id, 2)
    assert (again.created_at, again.refreshed_at) == (NOW, LATER)
    assert again.said.changes[0].engine_total.mean == 1.49
    with store.reading() as session:
        kept = evidence.revisions(session, first.id)
    assert [(one.number, one.at, one.changes[0].engine_total.mean) for one in kept] == [
        (1, NOW, 1.4),
        (2, LATER, 1.49),
    ]


def test_many_small_steps_out_of_the_first_interval_supersede(store: Store):
    first = added(store, said("chat", change(gain=0.4)))
    kept = [added(store, said("chat", change(gain=gain))) for gain in (0.45, 0.49)]

    moved = added(store, said("chat", change(gain=0.53)))

    assert {one.id for one in kept} == {first.id}
    assert moved.id != first.id
    with store.reading() as session:
        old = recommendations.one(session, first.id)
        why = recommendations.transitions(session, first.id)[-1].why
    assert (old.state, old.successor) == (State.SUPERSEDED, moved.id)
    assert why == (
        "replaced by newer evidence: its engine total at load 1 is +53% now, outside +30% to +50%"
    )


def test_a_held_recommendation_is_updated_in_place_and_stays_held(store: Store):
    first = added(store)
    move(store, first.id, State.HELD)

    again = added(store, said("chat", change(gain=0.45)))
    other = added(store, said("chat", change(LOOKUP_5)))

    assert (again.id, again.state) == (first.id, State.HELD)
    assert state_of(store, first.id) is State.SUPERSEDED
    assert other.state is State.PENDING


def test_another_proposal_supersedes_the_pending_one_of_its_route_only(store: Store):
    first, other_route = added(store), added(store, said("story"))

    second = added(store, said("chat", change(LOOKUP_5)))

    assert state_of(store, first.id) is State.SUPERSEDED
    assert state_of(store, other_route.id) is State.PENDING
    assert state_of(store, second.id) is State.PENDING


def test_no_change_supersedes_a_change_that_no_longer_pays(store: Store):
    first = added(store)

    added(store, said("chat", change(OFF), advice=Advice.NO_CHANGE))

    assert state_of(store, first.id) is State.SUPERSEDED


def test_while_a_change_is_under_way_its_route_gets_no_other(store: Store):
    move(store, added(store).id, State.APPROVED)

    assert add(store, said("chat", change(LOOKUP_5))) is None


def test_of_many_who_decide_at_once_one_wins(open_another: Callable[[], Store]):
    number = added(open_another()).id
    gate = threading.Barrier(6)
    outcomes: list[str] = []

    def decide(store: Store, to: State) -> None:
        gate.wait()
        try:
            with store.writing() as session:
                recommendations.move(
                    session, number, to, who="ann", at=LATER, why="", expected=State.PENDING
                )
            outcomes.append("won")
        except StateChanged:
            outcomes.append("lost")

    states = (State.APPROVED, State.REJECTED, State.HELD) * 2
    threads = [threading.Thread(target=decide, args=(open_another(), to)) for to in states]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["lost"] * 5 + ["won"]
    with open_another().reading() as session:
        assert len(recommendations.transitions(session, number)) == 2


def test_two_services_that_say_the_same_at_once_leave_one_pending_row(
    open_another: Callable[[], Store],
):
    stores = [open_another() for _ in range(4)]
    gate = threading.Barrier(len(stores))

    def say(store: Store) -> None:
        gate.wait()
        add(store, said())

    threads = [threading.Thread(target=say, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with stores[0].reading() as session:
        assert len(recommendations.listed(session)) == 1


def test_the_database_itself_holds_one_pending_row_a_route(store: Store):
    added(store)

    added(store, said("other"))

    with pytest.raises(StoreConflict), store.writing() as session:
        session.execute(update(RecommendationRow).values(route="chat"))


@pytest.mark.parametrize("gain", [float("nan"), float("inf")])
def test_a_figure_that_is_no_number_is_refused_at_the_door(store: Store, gain: float):
    with pytest.raises(StoreConflict, match="cannot be stored"):
        add(store, said("chat", change(gain=gain)))

    with store.reading() as session:
        assert recommendations.listed(session) == ()


def test_lists_are_newest_first_and_by_state_and_route(store: Store):
    first, second = added(store, said("a")), added(store, said("b"))
    move(store, first.id, State.HELD)

    with store.reading() as session:
        newest = [one.id for one in recommendations.listed(session)]
        held = [one.id for one in recommendations.listed(session, states=(State.HELD,))]
        of_b = [one.id for one in recommendations.listed(session, route="b")]
    assert newest == [second.id, first.id]
    assert held == [first.id]
    assert of_b == [second.id]


def plan_change(outcome: Outcome = Outcome.STARTED) -> PlanChange:
    return PlanChange(
        engine="bundled",
        recommendation=None,
        at=NOW,
        who="ann",
        why="try",
        outcome=outcome,
        plan=plan(("chat", LOAD_1, DRAFT_3)),
        before=PLAIN,
    )


def test_a_plan_change_is_closed_once(store: Store):
    with store.writing() as session:
        number = plans.add(session, plan_change())
        plans.close(session, number, Outcome.APPLIED, read_back_digest="d")

    with store.reading() as session:
        latest = plans.latest_applied(session, "bundled")
    assert latest is not None
    assert (latest.id, latest.plan, latest.before) == (number, plan_change().plan, PLAIN)
    with pytest.raises(StateChanged, match="settled"), store.writing() as session:
        plans.close(session, number, Outcome.FAILED, error="late")


def test_a_failed_change_is_not_the_plan_in_force(store: Store):
    with store.writing() as session:
        number = plans.add(session, plan_change())
        plans.close(session, number, Outcome.FAILED, error="no answer")

    with store.reading() as session:
        assert plans.latest_applied(session, "bundled") is None
        assert plans.listed(session, "bundled")[0].error == "no answer"
