"""The control loop acts on routes under an envelope only, and gives their plan back, on an engine.

Every test runs against a real engine with a tiny model; traffic is stored as windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import OFF, LatencyHistogram, Method, Plan, PlanEntry, Route, load_level_of
from policy.drift_alarms import Alarm, AlarmKind
from policy.envelope import Envelope
from policy.types import LoadMix, RequestObservation, Window
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.sites import Clock, site_on
from tests.policy.worlds import draft_costs, observation, step_costs, window
from tests.tuner.engine.server.running import RunningEngine
from tuner.errors import EngineUnreachable, LeaseLost, NotFound
from tuner.jobs.leader import Leader
from tuner.store import audit, drift, facts, observations, plans
from tuner.store.envelopes import EnvelopeState
from tuner.workflows.apply import Intent, apply
from tuner.workflows.autopilot import autopilot
from tuner.workflows.autopilot_memory import AutopilotMemory
from tuner.workflows.autopilot_state import (
    approve_envelope,
    listed,
    on_autopilot_reason,
    start,
    stop,
    withdraw,
)
from tuner.workflows.recommend import recommend
from tuner.workflows.site import Site

START_S = 50_000.0
MINUTES = 30
ONE, TWO = load_level_of(1), load_level_of(2)
STORY = PlanEntry(route="story", load=ONE, setting=LOOKUP_5)
SURVIVAL = (0.95, 0.9, 0.85)


@pytest.fixture
def clock() -> Clock:
    return Clock(START_S + 60 * MINUTES + 2)


@pytest.fixture
def site(
    migrated_file: Path, tmp_path: Path, engine: RunningEngine, clock: Clock
) -> Iterator[Site]:
    """Half an hour of traffic on which draft_model k=3 is plainly faster than off."""
    options = {"require_evaluation": False, "routes": [Route(name="chat", ttft_limit_s=1.0)]}
    with site_on(migrated_file, tmp_path, engine.url, clock, **options) as opened:
        with opened.store.writing() as session:
            for number in range(MINUTES):
                served = traffic(START_S + 60 * number)
                observations.add(session, opened.engine, served, opened.now())
        read_journal(opened)
        opened.actuator.apply(Plan(entries=(STORY,)), Plan().digest)
        yield opened


def read_journal(site: Site) -> None:
    with site.store.writing() as session:
        cursor = facts.open_cursor(session, site.engine, "boot", site.now())
        facts.note_pull(session, cursor, site.clock(), site.clock())


def traffic(start_s: float) -> Window:
    mix = LoadMix(
        load=ONE,
        steps=400,
        rows_by_route={"chat": 0.5, "story": 0.5},
        context_tokens=512.0,
        tokens=400,
        busy_s=8.0,
    )
    seen = [
        observation(setting, SURVIVAL, route=route, load=ONE)
        for route in ("chat", "story")
        for setting in (OFF, DRAFT_3)
    ]
    costs = step_costs(lambda rows, positions: 0.02 + 1e-5 * positions, 1, (0, 1, 2, 3))
    more = step_costs(lambda rows, positions: 0.02 + 1e-5 * positions, 2, (0, 1, 2, 3))
    drafts = draft_costs(lambda rows, depth: 0.001, (1, 2), (1, 2, 3))
    return window(seen, [*costs, *more], drafts, [mix], end_s=start_s + 60)


def envelope(site: Site, **changes: object) -> Envelope:
    plain: dict[str, object] = {
        "route": "chat",
        "methods": frozenset({Method.DRAFT_MODEL}),
        "max_k": 3,
        "expires_s": site.clock() + 86_400,
    }
    return Envelope(**{**plain, **changes})  # type: ignore[arg-type]


def approve(site: Site, **changes: object) -> None:
    approve_envelope(site, envelope(site, **changes), who="ann", why="try it")


def fly(site: Site) -> None:
    """Put chat on autopilot and let the loop bring its choice into force."""
    approve(site)
    assert autopilot(site) == "chat at load 1: off -> draft_model k=3"


def live(site: Site) -> Plan:
    return site.actuator.read_back()


def state_of(site: Site) -> EnvelopeState:
    (one,) = listed(site)
    return one.state


def test_without_an_envelope_the_loop_does_not_run(site: Site):
    before = live(site)

    assert autopilot(site) == "no route has an envelope"

    assert live(site) == before
    assert site.autopilot.controller is None


def test_only_entries_of_routes_under_an_envelope_change(site: Site):
    fly(site)

    assert live(site).setting_for("chat", ONE) == DRAFT_3
    assert live(site).entries[0] == STORY
    with site.store.reading() as session:
        change = plans.latest_applied(session, site.engine)
    assert change is not None
    assert (change.who, change.why) == ("autopilot", "chat at load 1: off -> draft_model k=3")
    assert change.read_back_digest == live(site).digest


def test_nothing_outside_the_envelope_is_used(site: Site):
    approve(site, methods=frozenset({Method.SUFFIX}))
    autopilot(site)
    assert live(site).setting_for("chat", ONE) == OFF

    approve(site, loads=(TWO,))
    autopilot(site)
    assert live(site).setting_for("chat", ONE) == OFF


def test_a_setting_whose_gate_did_not_pass_is_not_used(
    site: Site, migrated_file: Path, tmp_path: Path, engine: RunningEngine, clock: Clock
):
    with site_on(migrated_file, tmp_path, engine.url, clock) as strict:
        approve(strict)
        autopilot(strict)
        assert live(strict).setting_for("chat", ONE) == OFF


def test_evidence_that_is_missing_while_a_setting_runs_takes_it_back(
    site: Site, migrated_file: Path, tmp_path: Path, engine: RunningEngine, clock: Clock
):
    fly(site)
    with site_on(migrated_file, tmp_path, engine.url, clock) as strict:
        assert "draft_model k=3 on chat has no evaluation" in autopilot(strict)
        assert live(strict).setting_for("chat", ONE) == OFF
        assert state_of(strict) is EnvelopeState.STOPPED


def test_the_kill_switch_gives_the_approved_entries_back_at_once(site: Site, clock: Clock):
    fly(site)

    stop(site, None, who="bob", why="do not like it")

    assert live(site).digest == Plan(entries=(STORY,)).digest
    clock.now_s += 10
    read_journal(site)
    assert autopilot(site).startswith("the loop acts on no route: chat stopped: do not like it")
    assert live(site).setting_for("chat", ONE) == OFF
    with site.store.reading() as session:
        acts = [entry.action for entry in audit.listed(session)]
    assert {"autopilot_approve", "autopilot_stopped"} <= set(acts)

    start(site, "chat", who="bob", why="again")
    autopilot(site)
    assert live(site).setting_for("chat", ONE) == DRAFT_3


def silent(site: Site, clock: Clock) -> None:
    clock.now_s += 31


def alarmed(site: Site, clock: Clock) -> None:
    alarm = Alarm(
        kind=AlarmKind.DECAY,
        route="chat",
        since_s=site.clock(),
        seen_s=site.clock(),
        saw="Fewer were kept.",
        advice="Read.",
    )
    with site.store.writing() as session:
        drift.note_alarms(session, site.engine, [alarm], site.now())


def too_slow(site: Site, clock: Clock) -> None:
    clock.now_s += 70
    read_journal(site)
    seen = RequestObservation(
        route="chat",
        setting=DRAFT_3,
        load=ONE,
        requests=10,
        completion_tokens=100,
        decode_s=1.0,
        ttft=LatencyHistogram.of([5.0] * 10),
        chunk_gaps=LatencyHistogram.of([0.1]),
        tpot=LatencyHistogram.of([0.01] * 10),
    )
    start_s = site.clock() - 62
    slow = Window(start_s=start_s, end_s=start_s + 60, requests=(seen,))
    with site.store.writing() as session:
        observations.add(session, site.engine, slow, site.now())


def expired(site: Site, clock: Clock) -> None:
    clock.now_s += 86_400
    read_journal(site)


@pytest.mark.parametrize("happens", [silent, alarmed, too_slow, expired])
def test_whatever_happens_the_approved_entries_come_back(
    site: Site, clock: Clock, happens: Callable[[Site, Clock], None]
):
    fly(site)
    happens(site, clock)

    autopilot(site)

    assert live(site).digest == Plan(entries=(STORY,)).digest


def test_the_loop_goes_on_by_itself_once_the_journal_is_read_again(site: Site, clock: Clock):
    fly(site)
    silent(site, clock)
    autopilot(site)
    assert state_of(site) is EnvelopeState.PAUSED

    read_journal(site)
    autopilot(site)

    assert state_of(site) is EnvelopeState.ACTIVE
    assert live(site).setting_for("chat", ONE) == DRAFT_3


def test_a_restarted_service_learns_from_stored_windows_and_decides_the_same(site: Site):
    fly(site)
    fresh = replace(site, autopilot=AutopilotMemory())

    assert autopilot(fresh) == "decided for 1 load levels of 1 routes: no change"


def test_a_service_killed_between_the_stop_and_the_plan_gives_it_back_when_it_is_up(
    site: Site, migrated_file: Path, tmp_path: Path, clock: Clock, engine: RunningEngine
):
    fly(site)
    with (
        site_on(migrated_file, tmp_path, "http://127.0.0.1:9", clock) as cut_off,
        pytest.raises(EngineUnreachable),
    ):
        stop(cut_off, "chat", who="bob", why="the network is down")
    assert live(site).setting_for("chat", ONE) == DRAFT_3

    autopilot(site)

    assert live(site).digest == Plan(entries=(STORY,)).digest


def test_a_service_that_lost_the_lease_writes_nothing(site: Site, clock: Clock):
    approve(site)
    first, second = (Leader(site.store, name, site.now) for name in ("first", "second"))
    first.renew()
    assert first.fence is not None
    lost = replace(site, store=site.store.fenced(first.fence))
    clock.now_s += 16
    second.renew()
    read_journal(site)
    before = live(site)

    with pytest.raises(LeaseLost):
        autopilot(lost)

    assert live(site) == before


def test_a_plan_that_people_change_meanwhile_is_kept(site: Site):
    fly(site)
    other = PlanEntry(route="story", load=TWO, setting=DRAFT_3)
    now = live(site)
    wanted = replace(now, version=now.version + 1, entries=(*now.entries, other))
    apply(site, Intent(plan=wanted, before=now, recommendation=None, who="ann", why="by hand"))

    stop(site, "chat", who="bob", why="enough")

    assert live(site).digest == Plan(entries=(STORY, other)).digest


def test_a_route_on_autopilot_gets_no_recommendation_and_says_since_when(site: Site):
    approve(site)

    said = {one.route: " ".join(one.reasons) for one in recommend(site).said}

    assert "on autopilot since" in said["chat"]
    assert on_autopilot_reason(site, "story") is None


def test_a_withdrawn_route_is_left_alone(site: Site):
    fly(site)
    withdraw(site, "chat", who="ann", why="done")

    assert live(site).digest == Plan(entries=(STORY,)).digest
    assert autopilot(site) == "no route has an envelope"
    with pytest.raises(NotFound, match="route 'chat' has no envelope"):
        stop(site, "chat", who="ann", why="done")
