"""Live trials on a real engine: proposed, short, on record, and taken back whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import OFF, LatencyHistogram, Plan, PlanEntry, Route, load_level_of
from policy.types import Evidence, LoadMix, Observation, RequestObservation, Trial, Window
from tests.fixtures.facts import DRAFT_3, page, step
from tests.fixtures.said import said
from tests.fixtures.sites import Clock, site_on
from tests.tuner.engine.server.running import RunningEngine
from tuner.errors import BadRequest, StateChanged
from tuner.store import facts, observations, plans, recommendations
from tuner.workflows.apply import Intent, apply
from tuner.workflows.keep import keep_plan
from tuner.workflows.recommend import edits_of
from tuner.workflows.site import Site
from tuner.workflows.trial import end_trial, explore, running, start, without_trial

START_S = 50_000.0
HOURS = 3
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
    with site_on(migrated_file, tmp_path, engine.url, clock, explore_live=True) as opened:
        with opened.store.writing() as session:
            cursor = facts.open_cursor(session, opened.engine, "boot", opened.now())
            facts.add_page(session, cursor, page("boot", (step(1, START_S, ()),)))
            for number in range(HOURS * 60):
                window = served(START_S + 60 * number)
                observations.add(session, opened.engine, window, opened.now())
        yield opened


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


def propose(site: Site, trial: Trial = TRIAL) -> None:
    with site.store.writing() as session:
        one = replace(said("chat"), trials=(trial,))
        recommendations.add(session, site.engine, one, Plan(), who="recommend", at=site.now())


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


def test_what_was_tried_counts_against_the_next_trial(site: Site, clock: Clock):
    begun = start(site, "chat", TRIAL, who="ann")
    clock.now_s = begun.end_s
    keep_plan(site)

    with pytest.raises(BadRequest, match="2% of the tokens of chat last"):
        start(site, "chat", TRIAL, who="ann")


def test_one_trial_at_a_time(site: Site):
    start(site, "chat", TRIAL, who="ann")

    with pytest.raises(StateChanged, match="another trial is running"):
        start(site, "chat", replace(TRIAL, load=TWO), who="ann")
    assert "is on trial on chat" in explore(site)


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


def test_the_service_explores_only_where_settings_and_recommendations_say_so(
    site: Site, migrated_file: Path, tmp_path: Path, engine: RunningEngine
):
    assert explore(site) == "no live trial is proposed that its share of tokens allows"
    propose(site, replace(TRIAL, by=Evidence.REPLAY, most_token_share=0.0))
    assert explore(site) == "no live trial is proposed that its share of tokens allows"
    with site_on(migrated_file, tmp_path, engine.url) as quiet:
        assert "live trials are off" in explore(quiet)

    propose(site)
    assert explore(site) == "draft_model k=3 on trial on chat for 432 s"


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

    with site_on(migrated_file, tmp_path, engine.url, clock) as restarted:
        assert ": its time is over" in keep_plan(restarted)
    assert live(site).digest == Plan().digest


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
    with site_on(migrated_file, tmp_path, engine.url, clock, routes=limited) as strict:
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
