"""From a real engine's journal to stored recommendations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import (
    OFF,
    DraftCost,
    JournalRecord,
    Method,
    Plan,
    PlanEntry,
    Route,
    load_level_of,
)
from policy.drift_alarms import Alarm, AlarmKind
from policy.types import Advice
from tests.fixtures.facts import DRAFT_3, group, page, step
from tests.fixtures.sites import Clock, site_on
from tests.tuner.engine.server.running import RunningEngine
from tuner.errors import EngineUnreachable
from tuner.store import drift, evidence, facts, jobs, plans, recommendations
from tuner.store.plans import Outcome, PlanChange, Purpose
from tuner.store.recommendations import State
from tuner.workflows.apply import Intent, apply
from tuner.workflows.baseline import baseline
from tuner.workflows.gate import evaluate_pending
from tuner.workflows.ingest import ingest
from tuner.workflows.observe import close_windows
from tuner.workflows.recommend import edits_of, recommend
from tuner.workflows.retain import retain
from tuner.workflows.review import approve, reject, roll_back
from tuner.workflows.site import Site

START_S = 50_000.0
ONE = load_level_of(1)
DRAFT_1 = replace(DRAFT_3, k=1)


@pytest.fixture
def world(migrated_file: Path, tmp_path: Path, engine: RunningEngine) -> Iterator[Site]:
    """A site whose store holds traffic on which drafting 3 tokens clearly pays."""
    clock = Clock(START_S + 60)
    with site_on(
        migrated_file,
        tmp_path,
        engine.url,
        clock,
        require_evaluation=False,
        arms=(OFF, DRAFT_3),
        routes=(Route(name="chat"),),
    ) as site:
        with site.store.writing() as session:
            cursor = facts.open_cursor(session, site.engine, "boot", site.now())
            facts.add_page(session, cursor, page("boot", tuple(paying_records())))
            facts.note_pull(session, cursor, clock.now_s, clock.now_s)
        yield site


def paying_records() -> Iterator[JournalRecord]:
    cost = DraftCost(method=Method.DRAFT_MODEL, rows=1, tokens=3, depth=3, seconds=0.002)
    for seq in range(1, 401):
        at = START_S + seq * 0.1
        if seq % 2:
            yield step(seq, at, (group("chat", OFF, ((0, 0, 1),)),), verify_s=0.02)
        else:
            accepted = 3 if seq % 8 else 2
            rows = (group("chat", DRAFT_3, ((3, accepted, 1),), is_shadow=True),)
            yield step(seq, at, rows, verify_s=0.021, drafts=(cost,))


def test_what_pays_is_recommended_and_can_be_approved(world: Site):
    done = recommend(world)

    (stored,) = done.stored
    assert stored.said.advice is Advice.CHANGE
    assert stored.said.changes[0].proposed == DRAFT_3
    assert stored.said.changes[0].engine_total.mean > 2.0
    assert "1 routes looked at, 1 recommendations open" in str(done)
    with world.store.reading() as session:
        assert recommendations.one(session, stored.id) == stored

    assert approve(world, stored.id, who="ann").state is State.PROMOTED
    assert recommend(world).stored[0].said.advice is Advice.NO_CHANGE


def test_a_route_under_a_counter_fault_waits_and_keeps_what_it_has(world: Site):
    alarm = Alarm(
        kind=AlarmKind.COUNTER_FAULT,
        route="chat",
        since_s=START_S + 10,
        seen_s=START_S + 50,
        saw="chat counts more accepted than drafted tokens",
        advice="Look at the engine's counters.",
    )
    with world.store.writing() as session:
        drift.note_alarms(session, world.engine, [alarm], world.now())

    (said,) = recommend(world).said

    assert said.advice is Advice.NOT_ENOUGH_DATA
    assert "accepted than drafted" in said.reasons[0]


def test_entries_that_changed_four_times_within_the_hour_are_left_alone(world: Site):
    plain, drafting = Plan(), Plan(entries=(PlanEntry(route="chat", load=ONE, setting=DRAFT_3),))
    number = recommend(world).stored[0].id
    for turn in range(4):
        before, after = (plain, drafting) if turn % 2 == 0 else (drafting, plain)
        with world.store.writing() as session:
            change = PlanChange(
                engine=world.engine,
                recommendation=number,
                at=world.now(),
                who="ann",
                why="because",
                outcome=Outcome.APPLIED,
                plan=after,
                before=before,
            )
            plans.add(session, change)

    (said,) = recommend(world).said

    assert said.advice is Advice.NO_CHANGE
    assert "changed 4 times lately" in said.reasons[0]
    with world.store.reading() as session:
        (newest, *_) = plans.listed(session, world.engine)
    assert [(edit.route, edit.load) for edit in edits_of(newest)] == [("chat", ONE)]
    assert list(edits_of(replace(newest, recommendation=None))) == []


def test_asking_again_without_new_facts_leaves_the_row_as_it_is(world: Site):
    (first,) = recommend(world).stored

    again = recommend(world)

    assert again.silence_reason is not None
    assert "nothing new was seen since the last time" in again.silence_reason
    with world.store.reading() as session:
        assert recommendations.listed(session) == (first,)


def more_records(first: int, count: int) -> Iterator[JournalRecord]:
    """The same traffic, going on."""
    for record in paying_records():
        if record.seq <= count:
            yield replace(
                record, seq=first + record.seq - 1, at=START_S + (first + record.seq) * 0.1
            )


def pull(site: Site, records: Iterator[JournalRecord]) -> Site:
    """Give the site more of its journal, half a minute later."""
    found = tuple(records)
    later = replace(site, clock=Clock(found[-1].at + 20))
    with site.store.writing() as session:
        cursor = facts.latest_cursor(session, site.engine)
        assert cursor is not None
        facts.add_page(session, cursor, page("boot", found))
        facts.note_pull(session, cursor, later.clock(), later.clock())
    return later


def test_new_facts_that_say_the_same_update_the_row_in_place(world: Site):
    (first,) = recommend(world).stored

    (again,) = recommend(pull(world, more_records(401, 200))).stored

    assert (again.id, again.revision) == (first.id, 2)
    with world.store.reading() as session:
        before, after = evidence.revisions(session, first.id)
    assert (before.amount.passes, after.amount.passes) == (400, 600)
    assert before.amount.windows == 1


@pytest.mark.parametrize("refuse", ["reject", "roll back"])
def test_what_was_refused_is_snoozed_and_says_until_when(world: Site, refuse: str):
    (first,) = recommend(world).stored
    if refuse == "reject":
        reject(world, first.id, who="ann", why="not before the weekend")
    else:
        approve(world, first.id, who="ann")
        roll_back(world, first.id, who="ann", why="not before the weekend")

    (again,) = recommend(pull(world, more_records(401, 200))).stored

    assert again.id != first.id
    assert again.said.advice is Advice.NO_CHANGE
    assert again.said.changes[0].proposed == OFF
    assert "draft_model k=3 at load 1 is snoozed: #1 was" in again.said.reasons[0]
    assert "by ann because not before the weekend; it comes back when" in again.said.reasons[0]
    assert "400 more passes of the route put its mean above" in again.said.reasons[0]


def test_nothing_is_recommended_while_all_routes_explore(world: Site):
    before = world.actuator.read_back()
    explored = Plan(entries=(PlanEntry(route="chat", load=ONE, setting=DRAFT_3),))
    apply(world, exploring(explored, before, Purpose.EXPLORATION))

    during = recommend(world)
    live = world.actuator.read_back()

    assert during.silence_reason is not None
    assert "trying draft_model runs since 0 s; recommendations wait" in during.silence_reason
    assert baseline(world, live).digest == before.digest

    apply(world, exploring(before, live, Purpose.END_OF_EXPLORATION))
    assert recommend(world).stored[0].said.changes[0].current == OFF


def test_a_change_can_be_approved_while_its_place_explores(world: Site):
    (first,) = recommend(world).stored
    explored = Plan(entries=(PlanEntry(route="chat", load=ONE, setting=DRAFT_1),))
    apply(world, exploring(explored, world.actuator.read_back(), Purpose.EXPLORATION))

    assert approve(world, first.id, who="ann").state is State.PROMOTED
    assert world.actuator.read_back().setting_for("chat", ONE) == DRAFT_3


def exploring(wanted: Plan, before: Plan, purpose: Purpose) -> Intent:
    return Intent(
        plan=wanted,
        before=before,
        recommendation=None,
        who="demo",
        why="trying draft_model",
        purpose=purpose,
    )


def test_after_the_traffic_has_ended_what_was_recommended_stands(world: Site):
    (first,) = recommend(world).stored
    much_later = Clock(START_S + 600)
    with world.store.writing() as session:
        cursor = facts.latest_cursor(session, world.engine)
        assert cursor is not None
        facts.note_pull(session, cursor, much_later.now_s, much_later.now_s)
        plans.add(session, decided(world))
    close_windows(replace(world, clock=much_later))

    ended = recommend(replace(world, clock=much_later))

    assert ended.silence_reason is not None
    assert "the last traffic of bundled was 9 min ago" in ended.silence_reason
    with world.store.reading() as session:
        assert recommendations.listed(session) == (first,)


def decided(site: Site) -> PlanChange:
    return PlanChange(
        engine=site.engine,
        recommendation=None,
        at=site.now(),
        who="ann",
        why="by hand",
        outcome=Outcome.APPLIED,
        plan=Plan(),
        before=Plan(),
    )


def test_an_engine_that_was_not_read_lately_gets_no_recommendation(world: Site):
    stale = replace(world, clock=Clock(START_S + 60 + 31))

    assert "last read 31 s ago; the plan in force stays" in str(recommend(stale))
    with world.store.reading() as session:
        assert recommendations.listed(session) == ()


def test_an_engine_that_was_never_read_gets_no_recommendation(site: Site):
    assert str(recommend(site)).startswith("bundled has not been read yet; the plan in force stays")


def test_an_engine_without_traffic_gets_no_recommendation(
    migrated_file: Path, tmp_path: Path, fresh_engine: RunningEngine
):
    with site_on(migrated_file, tmp_path, fresh_engine.url) as idle:
        ingest(idle)

        assert str(recommend(idle)) == "no traffic of bundled is stored yet"


def test_real_traffic_gives_an_answer_for_every_route(site: Site, ask: Callable[..., None]):
    for route in ("chat", "story") * 3:
        ask(route, max_tokens=24)
    ingest(site)

    done = recommend(site)

    assert {"chat", "story"} <= {one.route for one in done.said}


def test_an_engine_that_is_away_leaves_everything_as_it_is(
    world: Site, migrated_file: Path, tmp_path: Path
):
    with (
        site_on(migrated_file, tmp_path, "http://127.0.0.1:9", Clock(START_S + 61)) as away,
        pytest.raises(EngineUnreachable),
    ):
        recommend(away)


def test_evaluations_run_only_where_they_are_required(world: Site):
    recommend(world)

    assert evaluate_pending(world) == "evaluation is not required"


def test_old_rows_go_once_windows_cover_them(world: Site):
    week_later = replace(world, clock=Clock(START_S + 7 * 86_400))
    with world.store.writing() as session:
        number = jobs.start(
            session,
            job="ingest",
            due_key="1",
            due_at=world.now(),
            holder="a",
            at=world.now(),
        )
        assert number is not None
        jobs.finish(session, number, outcome=jobs.RunOutcome.OK, at=world.now(), duration_s=1.0)

    assert retain(week_later) == "deleted 0 records, 0 samples, 1 runs, 0 older rows"
