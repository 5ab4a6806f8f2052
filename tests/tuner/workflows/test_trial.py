"""Live trials on a real engine: on record, bounded by tokens, taken back whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import OFF, LatencyHistogram, Plan, PlanEntry, Route, load_level_of
from policy.drift_alarms import Alarm, AlarmKind
from policy.types import Evidence, LoadMix, Observation, RequestObservation, Trial, Window
from tests.fixtures.facts import DRAFT_3, group, page, step
from tests.fixtures.sites import Clock, site_on
from tests.tuner.engine.server.running import RunningEngine, running_engine, tiny_settings
from tuner.errors import BadRequest, PlanRefused, StateChanged
from tuner.store import drift, facts, observations, plans, trials
from tuner.workflows.apply import Intent, apply
from tuner.workflows.keep import keep_plan
from tuner.workflows.recommend import edits_of
from tuner.workflows.site import Site
from tuner.workflows.trial import end_trial, running, start, watch_trial, without_trial

START_S = 50_000.0
HOURS = 3
EXPLORING = {"explore_live": True, "stale_after_s": 86_400.0, "require_evaluation": False}
ONE, TWO = load_level_of(1), load_level_of(2)
TRIAL = Trial(setting=DRAFT_3, by=Evidence.LIVE, load=ONE, most_gain=0.3, most_token_share=0.02)


@pytest.fixture
def clock() -> Clock:
    return Clock(START_S + HOURS * 3600)


@pytest.fixture
def site(
    migrated_file: Path, tmp_path: Path, engine: RunningEngine, clock: Clock
) -> Iterator[Site]:
    """Three hours of steady traffic, half of it at one row and half at two."""
    with site_on(migrated_file, tmp_path, engine.url, clock, **EXPLORING) as opened:
        serve(opened, START_S, HOURS * 60)
        yield opened


def serve(site: Site, start_s: float, minutes: int) -> None:
    """Store windows of steady traffic, and that the journal was read to its end."""
    with site.store.writing() as session:
        for number in range(minutes):
            window = served(start_s + 60 * number)
            observations.add(session, site.engine, window, site.now())
        cursor = facts.open_cursor(session, site.engine, "boot", site.now())
        facts.note_pull(session, cursor, site.clock(), site.clock())


def served(start_s: float) -> Window:
    seen = tuple(
        Observation(
            route="chat",
            setting=OFF,
            load=load,
            start_s=start_s,
            end_s=start_s + 60,
            passes=100,
            verify_passes=0,
            drafted=0,
            accepted=0,
            tokens=100,
        )
        for load in (ONE, TWO)
    )
    mix = LoadMix(
        load=ONE, steps=9, rows_by_route={"chat": 1.0}, context_tokens=9.0, tokens=9, busy_s=1.0
    )
    return Window(start_s=start_s, end_s=start_s + 60, observations=seen, mixes=(mix,))


def live(site: Site) -> Plan:
    return site.actuator.read_back()


def deliver(site: Site, tokens: int, seq: int = 1) -> None:
    """Store a step that delivered tokens of the Setting on trial, as if the journal was pulled."""
    at_s = site.clock()
    made = group("chat", DRAFT_3, ((3, 2, 1),), tokens=tokens)
    with site.store.writing() as session:
        cursor = facts.open_cursor(session, site.engine, "boot", site.now())
        facts.add_page(session, cursor, page("boot", (step(seq, at_s, (made,)),), first_seq=seq))


def test_a_trial_lasts_as_long_as_its_share_of_tokens_and_is_taken_back(site: Site, clock: Clock):
    """2 % of three hours' tokens, of which half pass at this load: 432 s."""
    begun = start(site, "chat", TRIAL, who="ann")

    assert begun.end_s - begun.start_s == pytest.approx(432, abs=1)
    assert live(site).setting_for("chat", ONE) == DRAFT_3
    assert live(site).setting_for("chat", TWO) == OFF
    assert without_trial(site, live(site)).digest == Plan().digest
    assert end_trial(site, live(site), who="keep_plan") is None

    clock.now_s = begun.end_s
    assert "end of the trial of" in keep_plan(site)
    assert live(site).digest == Plan().digest
    assert running(site, live(site)) is None


def test_a_burst_ends_a_trial_as_soon_as_its_tokens_are_used_up(site: Site, clock: Clock):
    """2 % of the day's 36,000 tokens are 720, however short a time they take."""
    begun = start(site, "chat", TRIAL, who="ann")
    assert begun.most_tokens == 720
    clock.now_s += 2
    deliver(site, 719)
    assert watch_trial(site, who="ingest") is None
    deliver(site, 1, seq=2)

    assert "its 720 tokens are used up" in str(watch_trial(site, who="ingest"))

    assert live(site).digest == Plan().digest
    with site.store.reading() as session:
        (ended,) = trials.since(session, site.engine, 0.0)
    assert (ended.tokens, ended.ended_s) == (720, clock.now_s)
    with pytest.raises(BadRequest, match="2% of the tokens of chat last 0 s"):
        start(site, "chat", TRIAL, who="ann")


def test_tokens_of_a_trial_are_those_of_its_place_only(site: Site):
    begun = start(site, "chat", TRIAL, who="ann")
    elsewhere = (
        group("story", DRAFT_3, tokens=1000),
        group("chat", OFF, ((0, 0, 1),), tokens=1000),
        group("chat", DRAFT_3, tokens=1000, is_shadow=True),
    )
    with site.store.writing() as session:
        cursor = facts.open_cursor(session, site.engine, "boot", site.now())
        steps = tuple(
            step(seq, site.clock(), (one,), running=1) for seq, one in enumerate(elsewhere, 1)
        )
        facts.add_page(session, cursor, page("boot", steps))

    with site.store.reading() as session:
        assert trials.tokens_of(session, begun) == 0


def test_tokens_that_were_used_up_while_the_service_was_down_end_a_trial_at_its_start(
    site: Site, clock: Clock, migrated_file: Path, tmp_path: Path, engine: RunningEngine
):
    start(site, "chat", TRIAL, who="ann")
    clock.now_s += 5
    deliver(site, 900)

    with site_on(migrated_file, tmp_path, engine.url, clock, **EXPLORING) as restarted:
        assert "its 720 tokens are used up" in keep_plan(restarted)
    assert live(site).digest == Plan().digest


def test_one_trial_at_a_time(site: Site):
    start(site, "chat", TRIAL, who="ann")

    with pytest.raises(StateChanged, match="another trial is running"):
        start(site, "chat", replace(TRIAL, load=TWO), who="ann")


def test_a_route_without_traffic_gets_no_trial(site: Site):
    with pytest.raises(BadRequest, match="it needs more traffic first"):
        start(site, "story", TRIAL, who="ann")
    assert live(site).digest == Plan().digest


def test_what_was_changed_meanwhile_stays_when_a_trial_ends(site: Site, clock: Clock):
    begun = start(site, "chat", TRIAL, who="ann")
    other = PlanEntry(route="story", load=ONE, setting=DRAFT_3)
    before = live(site)
    site.actuator.apply(replace(before, entries=(*before.entries, other)), before.digest)

    clock.now_s = begun.end_s
    assert end_trial(site, live(site), who="keep_plan") is not None

    assert live(site).entries == (other,)


def test_a_setting_that_somebody_replaced_is_no_longer_on_trial(site: Site, clock: Clock):
    begun = start(site, "chat", TRIAL, who="ann")
    site.actuator.apply(Plan(), live(site).digest)

    clock.now_s = begun.end_s
    assert end_trial(site, live(site), who="keep_plan") is None
    assert live(site).digest == Plan().digest


def test_trials_are_no_edits_of_the_plan(site: Site):
    start(site, "chat", TRIAL, who="ann")
    with site.store.reading() as session:
        (change,) = plans.listed(session, site.engine)
    assert list(edits_of(change)) == []
    assert change.why.startswith("trial of draft_model k=3 on chat at load 1 until ")


def test_a_setting_approved_after_its_trial_stays(site: Site, clock: Clock):
    begun = start(site, "chat", TRIAL, who="ann")
    clock.now_s = begun.end_s
    keep_plan(site)
    approved = Plan(entries=(PlanEntry(route="chat", load=ONE, setting=DRAFT_3),))
    intent = Intent(
        plan=approved, before=live(site), recommendation=None, who="ann", why="approved"
    )
    apply(site, intent)

    assert "is live" in keep_plan(site)
    assert live(site).setting_for("chat", ONE) == DRAFT_3


def test_the_default_of_the_plan_can_be_tried_and_is_taken_back(site: Site, clock: Clock):
    """Its entry vanishes from the plan then, so that no entry tells what is on trial."""
    entry = PlanEntry(route="chat", load=ONE, setting=OFF)
    plain = Plan(default=DRAFT_3, entries=(entry,))
    site.actuator.apply(plain, live(site).digest)

    begun = start(site, "chat", TRIAL, who="ann")
    assert live(site).setting_for("chat", ONE) == DRAFT_3
    clock.now_s = begun.end_s

    assert "end of the trial of draft_model k=3 on chat" in keep_plan(site)
    assert live(site).digest == plain.digest


def test_what_is_in_force_is_not_tried(site: Site):
    site.actuator.apply(Plan(default=DRAFT_3), live(site).digest)

    with pytest.raises(BadRequest, match="is in force on chat at load 1 already"):
        start(site, "chat", TRIAL, who="ann")


def test_a_trial_that_outlived_the_service_is_taken_back_at_its_next_start(
    site: Site, clock: Clock, migrated_file: Path, tmp_path: Path, engine: RunningEngine
):
    begun = start(site, "chat", TRIAL, who="ann")
    clock.now_s = begun.end_s + 7200

    with site_on(migrated_file, tmp_path, engine.url, clock, **EXPLORING) as restarted:
        assert ": its time is over" in keep_plan(restarted)
    assert live(site).digest == Plan().digest


@pytest.mark.parametrize("kind", [AlarmKind.LOOP, AlarmKind.COUNTER_FAULT])
def test_nothing_is_tried_on_a_route_whose_figures_cannot_be_trusted(site: Site, kind: AlarmKind):
    warn(site, kind, "chat")

    with pytest.raises(BadRequest, match=r"chat is being investigated for a .* Nothing is tried"):
        start(site, "chat", TRIAL, who="ann")


def test_an_alarm_ends_the_trial_of_its_route(site: Site):
    start(site, "chat", TRIAL, who="ann")
    warn(site, AlarmKind.LOOP, "story")
    assert watch_trial(site, who="ingest") is None

    warn(site, AlarmKind.LOOP, "chat")

    assert "being investigated for a loop" in str(watch_trial(site, who="ingest"))
    assert live(site).digest == Plan().digest


def warn(site: Site, kind: AlarmKind, route: str) -> None:
    now_s = site.clock()
    alarm = Alarm(
        kind=kind, route=route, since_s=now_s, seen_s=now_s, saw="All were kept.", advice="Read."
    )
    with site.store.writing() as session:
        drift.note_alarms(session, site.engine, [alarm], site.now())


def test_an_engine_that_restarts_gets_its_plan_back_without_the_trial(
    site: Site, migrated_file: Path, tmp_path: Path, tiny_model: Path, clock: Clock
):
    other = Plan(entries=(PlanEntry(route="story", load=TWO, setting=DRAFT_3),))
    before = live(site)
    apply(site, Intent(plan=other, before=before, recommendation=None, who="ann", why="approved"))
    start(site, "chat", TRIAL, who="ann")

    with (
        running_engine(tiny_settings(tiny_model)) as fresh,
        site_on(migrated_file, tmp_path, fresh.url, clock, **EXPLORING) as restarted,
    ):
        assert "restored" in keep_plan(restarted)
        assert live(restarted).entries == other.entries
        assert running(restarted, live(restarted)) is None
        start(restarted, "chat", TRIAL, who="ann")


def test_a_plan_that_was_read_before_a_trial_began_does_not_end_it(site: Site, clock: Clock):
    """The job that recommends reads the plan while another one begins a trial."""
    before = live(site)
    begun = start(site, "chat", TRIAL, who="ann")

    assert without_trial(site, before).digest == before.digest

    clock.now_s = begun.end_s
    assert "end of the trial of" in keep_plan(site)
    assert live(site).digest == Plan().digest


class Killed(BaseException):
    """What a killed service does not get to handle."""


class Deadly:
    """An actuator that changes the plan, and whose service dies before it can note so."""

    def __init__(self, site: Site) -> None:
        self.inner = site.actuator

    def read_back(self) -> Plan:
        return self.inner.read_back()

    def apply(self, plan: Plan, if_digest: str) -> object:
        self.inner.apply(plan, if_digest)
        raise Killed


def test_a_service_that_is_killed_while_it_ends_a_trial_does_not_forget_why(site: Site):
    start(site, "chat", TRIAL, who="ann")
    deliver(site, 900)
    with pytest.raises(Killed):
        watch_trial(replace(site, actuator=Deadly(site)), who="ingest")  # type: ignore[arg-type]

    assert running(site, live(site)) is None

    with site.store.reading() as session:
        (ended,) = trials.since(session, site.engine, 0.0)
    assert ended.reason == "its 720 tokens are used up"


def test_nothing_is_on_trial_while_its_tokens_cannot_be_counted(
    site: Site, migrated_file: Path, tmp_path: Path, engine: RunningEngine, clock: Clock
):
    start(site, "chat", TRIAL, who="ann")
    clock.now_s += 31

    with site_on(migrated_file, tmp_path, engine.url, clock, explore_live=True) as strict:
        assert "bundled was last read 31 s ago, so that its tokens" in keep_plan(strict)
        assert live(strict).digest == Plan().digest
        with pytest.raises(BadRequest, match="its tokens are not counted"):
            start(strict, "chat", TRIAL, who="ann")


class Stubborn:
    """An actuator that reads an engine's plan, and refuses to change it while it is told to."""

    def __init__(self, site: Site) -> None:
        self.inner = site.actuator
        self.refusal: str | None = None

    def read_back(self) -> Plan:
        return self.inner.read_back()

    def apply(self, plan: Plan, if_digest: str) -> object:
        if self.refusal is not None:
            raise PlanRefused(self.refusal)
        return self.inner.apply(plan, if_digest)


def test_an_end_that_the_engine_refuses_is_one_failed_change_until_something_changes(
    site: Site, clock: Clock
):
    stubborn = Stubborn(site)
    strict = replace(site, actuator=stubborn)  # type: ignore[arg-type]
    begun = start(strict, "chat", TRIAL, who="ann")
    clock.now_s = begun.end_s
    stubborn.refusal = "no drafter"

    with pytest.raises(PlanRefused, match="no drafter"):
        keep_plan(strict)
    for _ in range(5):
        clock.now_s += 10
        assert "is still in force: no drafter" in keep_plan(strict)
        assert watch_trial(strict, who="ingest") is None
    assert [change.outcome for change in changes(site)] == ["failed", "applied"]
    stubborn.refusal = "another reason"
    with pytest.raises(PlanRefused, match="another reason"):
        keep_plan(strict)
    stubborn.refusal = None

    assert "end of the trial of" in keep_plan(strict)
    assert [change.outcome for change in changes(site)] == ["applied", "applied"]
    assert live(site).digest == Plan().digest


def changes(site: Site) -> tuple[plans.PlanChange, ...]:
    with site.store.reading() as session:
        return plans.listed(session, site.engine)


@pytest.mark.parametrize(("slow", "is_ended"), [(1, False), (2, True)])
def test_a_trial_ends_early_where_the_route_breaks_its_limits(
    migrated_file: Path,
    tmp_path: Path,
    engine: RunningEngine,
    clock: Clock,
    site: Site,
    slow: int,
    is_ended: bool,
):
    """Up to a tenth of ten requests may be slow. What was slow before the trial says nothing."""
    limited = (Route(name="chat", ttft_limit_s=0.5),)
    changes = {**EXPLORING, "routes": limited}
    with site_on(migrated_file, tmp_path, engine.url, clock, **changes) as strict:
        close(strict, clock.now_s - 60, slow=10)
        start(strict, "chat", TRIAL, who="ann")
        close(strict, clock.now_s, slow=slow)
        clock.now_s += 61
        said = keep_plan(strict)

        assert ("20% of its requests broke its limits" in said) is is_ended
        assert (live(strict).setting_for("chat", ONE) == OFF) is is_ended
        refusal = BadRequest if is_ended else StateChanged
        message = "broke its limits within the last day" if is_ended else "another trial is running"
        with pytest.raises(refusal, match=message):
            start(strict, "chat", TRIAL, who="ann")


def close(site: Site, start_s: float, slow: int) -> None:
    """Close a window of ten requests, some of which waited a second for their first token."""
    ttft = LatencyHistogram.of([1.0] * slow + [0.1] * (10 - slow))
    seen = RequestObservation(
        route="chat",
        setting=DRAFT_3,
        load=ONE,
        requests=10,
        completion_tokens=100,
        decode_s=1.0,
        ttft=ttft,
        chunk_gaps=LatencyHistogram.of([0.1]),
        tpot=LatencyHistogram.of([0.01] * 10),
    )
    window = Window(start_s=start_s, end_s=start_s + 60, requests=(seen,))
    with site.store.writing() as session:
        observations.add(session, site.engine, window, site.now())
