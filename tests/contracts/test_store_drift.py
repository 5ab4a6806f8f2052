"""Drift histories, alarms, identities and decisions, on SQLite and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from collectors.records import OFF, Method, Plan, PlanEntry, load_level_of
from policy.drift import DriftState, watch
from policy.drift_alarms import AFTER, BEFORE, Alarm, AlarmKind
from policy.lottery import Chance
from policy.simulate.wear import Wear, worn_windows
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tuner.errors import BadRequest, NotFound
from tuner.store import Store, audit, decisions, drift, facts
from tuner.store.decisions import Decision
from tuner.store.drift import Identity

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOW_S = NOW.timestamp()
ENGINE = "bundled"
ONE, FEW = load_level_of(1), load_level_of(4)
DECAY = Alarm(
    kind=AlarmKind.DECAY,
    route="chat",
    method=Method.EAGLE,
    since_s=NOW_S - 900,
    seen_s=NOW_S,
    saw="it fell",
    advice="restart",
    figures={BEFORE: 3.07, AFTER: 2.9},
)


def note(store: Store, *alarms: Alarm, at: datetime = NOW) -> int:
    with store.writing() as session:
        return drift.note_alarms(session, ENGINE, alarms, at)


def listed(store: Store, *, open_only: bool = False) -> list[drift.StoredAlarm]:
    with store.reading() as session:
        return list(drift.alarms(session, ENGINE, open_only=open_only))


def test_what_was_seen_comes_back_as_it_was(store: Store):
    state = DriftState()
    with store.reading() as session:
        assert drift.state_of(session, ENGINE) == (state, None)
    for worn in worn_windows(Wear(), 40, np.random.default_rng(1)):
        state, _ = watch(state, worn.window)
    for through_s in (60.0, 2400.0):
        with store.writing() as session:
            drift.save_state(session, ENGINE, state, through_s)

    with store.reading() as session:
        read, end_s = drift.state_of(session, ENGINE)
        assert drift.state_of(session, "other") == (DriftState(), None)

    assert end_s == 2400.0
    assert {scope: one.to_dict() for scope, one in read.histories.items()} == {
        scope: one.to_dict() for scope, one in state.histories.items()
    }


def test_an_alarm_that_goes_on_is_one_row_that_began_when_it_began(store: Store):
    again = replace(DECAY, since_s=NOW_S, seen_s=NOW_S + 60, figures={BEFORE: 2.9, AFTER: 2.8})

    assert note(store, DECAY) == 1
    assert note(store, again, at=NOW + timedelta(minutes=1)) == 0

    (stored,) = listed(store)
    assert stored.raised_at == NOW
    assert (stored.alarm.since_s, stored.alarm.seen_s) == (NOW_S - 900, NOW_S + 60)
    assert stored.alarm.figures == {BEFORE: 3.07, AFTER: 2.8}
    assert stored.is_open


def test_a_rise_ends_the_decay_of_its_route_only(store: Store):
    note(store, DECAY, replace(DECAY, route="story"))

    note(store, replace(DECAY, kind=AlarmKind.RISE, figures={BEFORE: 2.8, AFTER: 3.1}))

    assert {(one.alarm.kind, one.alarm.route) for one in listed(store, open_only=True)} == {
        (AlarmKind.RISE, "chat"),
        (AlarmKind.DECAY, "story"),
    }


def test_a_second_version_change_is_another_alarm_although_the_first_was_acknowledged(store: Store):
    """Else it would go unseen, and what was learned between the two would count in full."""
    first = replace(DECAY, kind=AlarmKind.VERSION_CHANGE, route=None, method=None)
    note(store, first)
    with store.writing() as session:
        drift.acknowledge(session, listed(store)[0].id, who="ann", why="an upgrade", at=NOW)
    again = replace(first, since_s=NOW_S + 3600, seen_s=NOW_S + 3600, saw="it is another again")

    assert note(store, again, at=NOW + timedelta(hours=1)) == 1

    (newest,) = listed(store, open_only=True)
    assert (newest.alarm, len(listed(store))) == (again, 2)


@pytest.mark.parametrize("kind", [AlarmKind.DECAY, AlarmKind.RISE, AlarmKind.MIX_CHANGE])
def test_a_second_change_is_another_alarm_although_the_first_was_acknowledged(
    store: Store, kind: AlarmKind
):
    """Else a route that slides on would slide unseen behind what somebody looked at."""
    first = replace(DECAY, kind=kind)
    note(store, first)
    with store.writing() as session:
        drift.acknowledge(session, listed(store)[0].id, who="ann", why="known", at=NOW)
    again = replace(
        first, since_s=NOW_S + 7200, seen_s=NOW_S + 9000, figures={BEFORE: 2.9, AFTER: 2.6}
    )

    assert note(store, again, at=NOW + timedelta(hours=3)) == 1

    (newest,) = listed(store, open_only=True)
    assert (newest.alarm, len(listed(store))) == (again, 2)


def test_more_alarms_than_a_page_holds_are_all_listed(store: Store):
    note(store, *(replace(DECAY, route=f"route-{number}") for number in range(250)))

    assert len(listed(store)) == 250


def test_acknowledging_is_in_the_audit_once_with_its_reason_on_a_line(store: Store):
    note(store, DECAY)
    for who in ("ann", "bob"):
        with store.writing() as session:
            drift.acknowledge(session, 1, who=who, why="known\n since May", at=NOW)

    with store.reading() as session:
        (entry,) = audit.listed(session)
    assert (entry.who, entry.action, entry.target, entry.detail) == (
        "ann",
        "drift.acknowledge",
        "drift alarm 1",
        "known since May",
    )


@pytest.mark.parametrize("why", [" ", "x" * 501])
def test_a_reason_that_is_none_or_a_book_is_refused(store: Store, why: str):
    note(store, DECAY)

    with pytest.raises(BadRequest, match="a reason has 1 to 500"), store.writing() as session:
        drift.acknowledge(session, 1, who="ann", why=why, at=NOW)
    assert listed(store)[0].is_open


def test_alarms_about_everything_are_told_from_alarms_about_a_route(store: Store):
    fault = replace(DECAY, kind=AlarmKind.COUNTER_FAULT, route=None, method=None)

    assert note(store, fault, replace(fault, route="chat"), replace(fault, route="chat")) == 2

    assert [one.alarm.route for one in listed(store)] == ["chat", None]
    assert listed(store)[1].alarm == fault


def test_alarms_end_when_they_were_not_seen_for_their_lifetime(store: Store):
    note(store, DECAY, replace(DECAY, kind=AlarmKind.LOOP))

    with store.writing() as session:
        assert drift.end_quiet(session, ENGINE, NOW_S + 599) == 0
        assert drift.end_quiet(session, ENGINE, NOW_S + 601) == 1

    assert [one.alarm.kind for one in listed(store, open_only=True)] == [AlarmKind.DECAY]
    assert note(store, replace(DECAY, kind=AlarmKind.LOOP)) == 1


def test_an_acknowledged_alarm_stops_nothing_and_is_not_raised_again(store: Store):
    note(store, replace(DECAY, kind=AlarmKind.LOOP))
    (raised,) = listed(store)

    with store.writing() as session:
        drift.acknowledge(session, raised.id, who="ann", why="copies by design", at=NOW)
        second = drift.acknowledge(session, raised.id, who="bob", why="me too", at=NOW)
        drift.end_quiet(session, ENGINE, NOW_S + 3600)
    assert note(store, replace(DECAY, kind=AlarmKind.LOOP, seen_s=NOW_S + 3600)) == 0

    (kept,) = listed(store)
    assert listed(store, open_only=True) == []
    assert (second.acknowledged_by, kept.acknowledged_why) == ("ann", "copies by design")
    assert kept.ended_at is None
    with pytest.raises(NotFound, match="drift alarm 99"), store.writing() as session:
        drift.acknowledge(session, 99, who="ann", why="?", at=NOW)


def test_alarms_that_ended_long_ago_are_deleted(store: Store):
    note(store, DECAY, replace(DECAY, kind=AlarmKind.LOOP))
    with store.writing() as session:
        drift.end_quiet(session, ENGINE, NOW_S + 700)
        assert drift.delete_before(session, NOW + timedelta(days=10)) == 1

    assert [one.alarm.kind for one in listed(store)] == [AlarmKind.DECAY]


def test_the_newest_identity_of_an_engine_counts(store: Store):
    old = Identity(at_s=1.0, boot_id="a", parts={"engine": "x 1"})
    new = Identity(at_s=2.0, boot_id="b", parts={"engine": "x 2"})
    with store.writing() as session:
        assert drift.latest_identity(session, ENGINE) is None
        drift.add_identity(session, ENGINE, old)
        drift.add_identity(session, ENGINE, new)

    with store.reading() as session:
        assert drift.latest_identity(session, ENGINE) == new
        assert drift.latest_identity(session, "other") is None


def test_starts_of_an_engine_are_those_since_a_moment_and_the_one_before(store: Store):
    with store.writing() as session:
        for hour, boot in enumerate("abc"):
            facts.open_cursor(session, ENGINE, boot, NOW + timedelta(hours=hour))

    with store.reading() as session:
        since = drift.boots(session, ENGINE, NOW_S + 3000)
        assert [boot.boot_id for boot in drift.boots(session, ENGINE, NOW_S + 9e9)] == ["c"]
    assert [boot.boot_id for boot in since] == ["a", "b", "c"]
    assert since[1].started_s == NOW_S + 3600


def decision(at_s: float, plan: Plan, chances: tuple[Chance, ...] = ()) -> Decision:
    return Decision(
        engine=ENGINE,
        at_s=at_s,
        plan=plan,
        policy_version="0.1.0+abc",
        who="ann",
        arms=(OFF, DRAFT_3, LOOKUP_5),
        chances=chances,
    )


DRAFTING = Plan(entries=(PlanEntry(route="chat", load=ONE, setting=DRAFT_3),))


def test_a_decision_comes_back_with_its_chances_at_every_place(store: Store):
    drawn = Chance(route="chat", load=ONE, arms=((OFF, 0.25), (DRAFT_3, 0.75)))
    with store.writing() as session:
        assert decisions.note(session, decision(10.0, DRAFTING, (drawn,)))

    with store.reading() as session:
        (read,) = decisions.log_of(session, ENGINE, 0.0, 99.0).decisions

    assert read.plan.digest == DRAFTING.digest
    assert (read.at_s, read.policy_version, read.who) == (10.0, "0.1.0+abc", "ann")
    assert dict(read.chance_at(("chat", ONE)).arms) == {OFF: 0.25, DRAFT_3: 0.75}
    elsewhere = read.chance_at(("story", FEW))
    assert dict(elsewhere.arms) == {OFF: 1.0, DRAFT_3: 0.0, LOOKUP_5: 0.0}


def test_the_same_plan_is_logged_once_until_it_changes(store: Store):
    with store.writing() as session:
        noted = [
            decisions.note(session, decision(at_s, plan))
            for at_s, plan in ((1.0, Plan()), (2.0, Plan()), (3.0, DRAFTING), (4.0, Plan()))
        ]

    with store.reading() as session:
        log = decisions.log_of(session, ENGINE, 0.0, 99.0)
    assert noted == [True, False, True, True]
    assert [one.at_s for one in log.decisions] == [1.0, 3.0, 4.0]


def test_a_stretch_has_the_decision_that_held_nearly_throughout(store: Store):
    with store.writing() as session:
        for at_s, plan in ((10.0, Plan()), (20.0, DRAFTING)):
            decisions.note(session, decision(at_s, plan))
    with store.reading() as session:
        log = decisions.log_of(session, ENGINE, 12.0, 40.0)

    def held(start_s: float, end_s: float) -> str | None:
        found = log.throughout(start_s, end_s, 0.95)
        return None if found is None else found.plan.digest

    assert held(5.0, 9.0) is None
    assert held(15.0, 25.0) is None
    assert held(12.0, 19.0) == Plan().digest
    assert held(12.0, 20.3) == Plan().digest
    assert [held(start_s, 40.0) for start_s in (20.0, 19.2)] == [DRAFTING.digest] * 2
    assert held(18.0, 40.0) is None


def test_what_was_drawn_is_logged_each_time_and_holds_for_its_window(store: Store):
    drawn = Chance(route="chat", load=ONE, arms=((OFF, 0.75), (DRAFT_3, 0.25)))
    with store.writing() as session:
        for number in range(3):
            made = replace(decision(10.0, Plan(), (drawn,)), seed=2**53 - number, until_s=70.0)
            assert decisions.note(session, made)

    with store.reading() as session:
        read = decisions.log_of(session, ENGINE, 0.0, 99.0).decisions
    assert [one.seed for one in read] == [2**53, 2**53 - 1, 2**53 - 2]
    assert [one.chance_at(("chat", ONE), 70.0).of(DRAFT_3) for one in read] == [0.25] * 3
    assert [one.chance_at(("chat", ONE), 130.0).of(DRAFT_3) for one in read] == [0.0] * 3


def test_old_decisions_go_but_never_the_one_that_was_in_force(store: Store):
    with store.writing() as session:
        for at_s, plan in ((10.0, Plan()), (20.0, DRAFTING), (30.0, Plan())):
            decisions.note(session, decision(at_s, plan))
        decisions.delete_before(session, ENGINE, 25.0)

    with store.reading() as session:
        log = decisions.log_of(session, ENGINE, 0.0, 99.0)
    assert [one.at_s for one in log.decisions] == [20.0, 30.0]
