"""What is old goes, what anything still needs stays, on SQLite and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from collectors.records import OFF, Setting
from policy.types import Window
from tests.contracts.test_store_decisions import plan_change
from tests.contracts.test_store_rows import config
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import LOAD_1, PLAIN, change, said
from tuner.store import (
    Store,
    audit,
    divergences,
    drift,
    evaluations,
    observations,
    pinned,
    plans,
    recommendations,
    replays,
    retention,
    trials,
)
from tuner.store.audit import AuditEntry
from tuner.store.divergences import ArmCounts, DivergenceSummary
from tuner.store.drift import Identity
from tuner.store.evaluations import Evaluation
from tuner.store.plans import Outcome
from tuner.store.recommendations import State
from tuner.store.replays import ReplayState, ReplaySummary
from tuner.store.trials import StoredTrial

ENGINE = "bundled"
OLD = datetime(2026, 8, 1, 12, tzinfo=UTC)
BEFORE = datetime(2026, 9, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ARMS = (OFF, DRAFT_3, LOOKUP_5)


def prune(store: Store) -> int:
    with store.writing() as session:
        return retention.delete_unneeded(session, ENGINE, BEFORE)


def say(store: Store, proposed: Setting, at: datetime = OLD) -> int:
    with store.writing() as session:
        one = said("chat", change(proposed))
        stored = recommendations.add(session, ENGINE, one, PLAIN, who="recommend", at=at)
    assert stored is not None
    return stored.id


def move(store: Store, number: int, *states: State, at: datetime = OLD) -> None:
    with store.writing() as session:
        for state in states:
            recommendations.move(session, number, state, who="ann", at=at, why="because")


def numbers(store: Store) -> list[int]:
    with store.reading() as session:
        return sorted(one.id for one in recommendations.listed(session))


def test_recommendations_that_nobody_answered_go_the_others_stay(store: Store):
    dropped = say(store, DRAFT_3)
    answered = say(store, LOOKUP_5)
    move(store, answered, State.HELD)
    refused = say(store, DRAFT_3)
    with store.writing() as session:
        audit.add(
            session,
            AuditEntry(
                at=OLD,
                who="bob",
                action="recommendation.approve",
                target=f"recommendation {refused}",
                outcome="refused",
            ),
        )
    pending = say(store, LOOKUP_5)

    prune(store)

    assert dropped not in numbers(store)
    assert numbers(store) == [answered, refused, pending]
    with store.reading() as session:
        assert len(audit.listed(session)) == 1


def applied(store: Store, recommendation: int | None = None, at: datetime = OLD) -> int:
    one = replace(plan_change(Outcome.APPLIED), recommendation=recommendation, at=at)
    with store.writing() as session:
        return plans.add(session, one)


def test_plans_go_but_for_the_last_one_open_ones_and_those_of_a_decision(store: Store):
    decided = say(store, DRAFT_3)
    move(store, decided, State.APPROVED, State.STAGED, State.PROMOTED)
    of_decision, old = applied(store, decided), applied(store)
    with store.writing() as session:
        unsettled = plans.add(session, replace(plan_change(Outcome.STARTED), at=OLD))
        failed = plans.add(session, replace(plan_change(Outcome.FAILED), at=OLD))
    tried = applied(store)
    with store.writing() as session:
        trials.add(session, trial(tried))
    latest = applied(store)

    prune(store)

    with store.reading() as session:
        kept = {one.id for one in plans.listed(session, ENGINE)}
    assert kept == {of_decision, unsettled, tried, latest}
    assert {old, failed}.isdisjoint(kept)


def trial(change_number: int) -> StoredTrial:
    return StoredTrial(
        engine=ENGINE,
        change=change_number,
        route="chat",
        load=LOAD_1,
        setting=DRAFT_3,
        former=OFF,
        start_s=OLD.timestamp(),
        end_s=OLD.timestamp() + 60,
        most_tokens=10,
        who="ann",
    )


def report(store: Store, at: datetime) -> int:
    counts = ArmCounts(identical=9, near_tie=1, suspicious=0)
    summary = DivergenceSummary(
        tested=counts,
        control=counts,
        diverges=False,
        verdict="alike",
        noise_margin=0.1,
        false_alarm_rate=0.05,
        p_value=0.5,
    )
    plain, tested = (config(arm).digest for arm in (OFF, DRAFT_3))
    with store.writing() as session:
        return divergences.add(
            session, engine=ENGINE, plain=plain, tested=tested, summary=summary, pairs=(), at=at
        )


@pytest.fixture
def configured(store: Store) -> Store:
    with store.writing() as session:
        for arm in ARMS:
            pinned.remember(session, config(arm), OLD)
    return store


def evaluated(store: Store, at: datetime, divergence: int | None = None) -> int:
    verdict = Evaluation(
        digest=config(DRAFT_3).digest,
        at=at,
        is_passing=True,
        reasons=(),
        divergence=divergence,
        replay=None,
    )
    with store.writing() as session:
        return evaluations.add(session, verdict)


def test_an_evaluation_stays_with_its_report_where_an_approval_stood_on_it(configured: Store):
    store = configured
    early, proof = report(store, OLD), report(store, OLD + DAY)
    evaluated(store, OLD, early)
    stood_on = evaluated(store, OLD + DAY, proof)
    number = say(store, DRAFT_3)
    move(store, number, State.APPROVED, at=OLD + 2 * DAY)
    evaluated(store, OLD + 3 * DAY)
    newest = evaluated(store, OLD + 4 * DAY)

    prune(store)

    with store.reading() as session:
        assert sorted(one.id for one in evaluations.listed(session)) == [stood_on, newest]
        assert [one.id for one in divergences.listed(session)] == [proof]
        assert {one.setting for one in pinned.listed(session)} == {OFF, DRAFT_3}


def test_replays_go_unless_they_run(configured: Store):
    base, other = (config(arm).digest for arm in (OFF, LOOKUP_5))
    with configured.writing() as session:
        done, going = (
            replays.start(
                session, engine=ENGINE, route=None, base=base, other=other, options={}, at=OLD
            )
            for _ in range(2)
        )
        empty = ReplaySummary(pairs=0, void_pairs=0)
        replays.finish(session, done, state=ReplayState.DONE, summary=empty, at=OLD)

    prune(configured)

    with configured.reading() as session:
        assert [one.id for one in replays.listed(session)] == [going]


def test_of_windows_and_identities_the_newest_stay_however_old(store: Store):
    with store.writing() as session:
        for number in range(3):
            at_s = OLD.timestamp() + 60 * number
            window = Window(start_s=at_s, end_s=at_s + 60)
            observations.add(session, ENGINE, window, OLD)
            drift.add_identity(session, ENGINE, Identity(at_s=at_s, boot_id="b", parts={}))

    assert prune(store) == 4

    with store.reading() as session:
        assert observations.last_end_s(session, ENGINE) == OLD.timestamp() + 180
        newest = drift.latest_identity(session, ENGINE)
    assert newest is not None
    assert newest.at_s == OLD.timestamp() + 120


def test_what_is_young_stays(configured: Store):
    applied(configured, at=BEFORE + DAY)
    applied(configured, at=BEFORE + DAY)
    report(configured, BEFORE + DAY)
    say(configured, DRAFT_3, at=BEFORE + DAY)
    say(configured, LOOKUP_5, at=BEFORE + DAY)
    prune(configured)

    with configured.reading() as session:
        assert len(plans.listed(session, ENGINE)) == 2
        assert len(divergences.listed(session)) == 1
    assert len(numbers(configured)) == 2


def test_wrong_tokens_leave_the_audit_and_nothing_else_does(store: Store):
    """Anybody can send some, for ever."""
    made = [("sign_in", "refused"), ("sign_in", "done"), ("recommendation.approve", "refused")]
    with store.writing() as session:
        for at in (OLD, BEFORE):
            for action, outcome in made:
                audit.add(
                    session,
                    AuditEntry(at=at, who="10.0.0.1", action=action, target="x", outcome=outcome),
                )

    assert prune(store) == 1

    with store.reading() as session:
        left = [(one.action, one.outcome, one.at) for one in reversed(audit.listed(session))]
    assert left == [(*one, at) for at in (OLD, BEFORE) for one in made][1:]
