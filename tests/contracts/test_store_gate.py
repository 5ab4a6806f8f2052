"""What replays and reports show by route, and evaluations under way, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from collectors.records import load_level_of
from policy.gate import PairSample, route_speeds
from tests.contracts.test_store_rows import config, start_replay
from tests.fixtures.facts import DRAFT_3
from tuner.store import Store, divergences, gate_runs, pinned, replays, route_proofs
from tuner.store.divergences import ArmCounts, DivergenceSummary
from tuner.store.gate_runs import GateState
from tuner.store.replays import ReplayState, ReplaySummary

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_speeds_come_back_by_route_from_finished_replays_only(store: Store):
    number = start_replay(store)
    samples = [
        PairSample(route=route, load=load_level_of(1), log_ratio=-0.5, cluster=f"{route} {place}")
        for route, count in (("chat", 9), ("story", 2))
        for place in range(count)
    ]
    speeds = route_speeds(samples, precision=0.1)
    names = {"base": config().digest, "other": config(DRAFT_3).digest, "route": "chat"}
    with store.writing() as session:
        route_proofs.add_speeds(session, number, speeds)
    with store.reading() as session:
        assert route_proofs.newest_speeds(session, **names, since=NOW - HOUR) == ()
    with store.writing() as session:
        replays.finish(session, number, state=ReplayState.DONE, summary=ReplaySummary(), at=NOW)

    with store.reading() as session:
        assert route_proofs.speeds_of(session, number) == speeds
        (found,) = route_proofs.newest_speeds(session, **names, since=NOW - HOUR)
        assert route_proofs.newest_speeds(session, **names, since=NOW + HOUR) == ()
    assert (found.replay, found.speed) == (number, speeds[0])


def test_outputs_come_back_by_route_from_the_newest_report(store: Store):
    summary = DivergenceSummary(
        tested=ArmCounts(identical=20),
        control=ArmCounts(identical=20),
        diverges=False,
        verdict="pass: all identical",
        noise_margin=1e-4,
        false_alarm_rate=0.01,
        p_value=1.0,
    )
    with store.writing() as session:
        number = divergences.add(
            session,
            engine="bundled",
            plain=pinned.remember(session, config(), NOW),
            tested=pinned.remember(session, config(DRAFT_3), NOW),
            summary=summary,
            pairs=(),
            at=NOW,
        )
        route_proofs.add_outputs(session, number, {"chat": summary})

    tested = config(DRAFT_3).digest
    with store.reading() as session:
        found = route_proofs.newest_outputs(session, tested=tested, route="chat", since=NOW - HOUR)
        assert route_proofs.outputs_of(session, number) == {"chat": summary}
        for route, since in (("story", NOW - HOUR), ("chat", NOW + HOUR)):
            other = route_proofs.newest_outputs(session, tested=tested, route=route, since=since)
            assert other is None
    assert found is not None
    assert (found.divergence, found.summary) == (number, summary)


@pytest.mark.parametrize("error", [None, "the engine is gone"])
def test_one_evaluation_is_open_a_route_and_setting(store: Store, error: str | None):
    def ask(route: str) -> bool:
        with store.writing() as session:
            digest = pinned.remember(session, config(DRAFT_3), NOW)
            return gate_runs.ask(
                session, engine="bundled", route=route, digest=digest, who="Ada", at=NOW
            )

    assert [ask("chat"), ask("chat"), ask("story")] == [True, False, True]
    with store.writing() as session:
        first, second = gate_runs.asked(session, "bundled")
        gate_runs.finish(session, first.id, at=NOW, error=error)
        gate_runs.finish(session, first.id, at=NOW + HOUR, error="later")
    assert ask("chat")

    with store.writing() as session:
        assert gate_runs.delete_before(session, NOW + HOUR) == 1
        kept = gate_runs.asked(session, "bundled")
        assert [one.route for one in kept] == ["story", "chat"]
        assert second.state is GateState.ASKED
