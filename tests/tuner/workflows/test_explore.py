"""What is tried in a window is drawn by chances on record, on a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collectors.records import OFF, Plan, PlanEntry, load_level_of
from policy.lottery import drawn
from policy.types import Evidence, Trial
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import said
from tests.fixtures.sites import Clock, site_on
from tests.tuner.engine.server.running import RunningEngine
from tests.tuner.workflows.test_trial import EXPLORING, serve
from tuner.store import decisions, recommendations
from tuner.store.decisions import Decision
from tuner.workflows.drift import watch_drift
from tuner.workflows.explore import explore
from tuner.workflows.site import Site

START_S = 60_000.0
ONE, TWO = load_level_of(1), load_level_of(2)
TRIAL = Trial(
    setting=DRAFT_3,
    by=Evidence.LIVE,
    load=ONE,
    most_gain=0.3,
    most_token_share=0.02,
    win_share=0.5,
)


@pytest.fixture
def clock() -> Clock:
    return Clock(START_S + 3 * 3600)


@pytest.fixture
def site(
    migrated_file: Path, tmp_path: Path, engine: RunningEngine, clock: Clock
) -> Iterator[Site]:
    """Three hours of steady traffic, and a new seed for every draw."""
    generator = np.random.default_rng(5)
    with site_on(migrated_file, tmp_path, engine.url, clock, **EXPLORING) as opened:
        serve(opened, START_S, 180)
        yield replace(opened, generator=lambda: generator)


def propose(site: Site, *trials: Trial, route: str = "chat") -> None:
    with site.store.writing() as session:
        one = replace(said(route), trials=trials or (TRIAL,))
        recommendations.add(session, site.engine, one, Plan(), who="recommend", at=site.now())


def live(site: Site) -> Plan:
    return site.actuator.read_back()


def log(site: Site) -> tuple[Decision, ...]:
    with site.store.reading() as session:
        return decisions.log_of(session, site.engine, 0.0, 1e12).decisions


def test_the_service_explores_only_where_settings_and_recommendations_say_so(
    site: Site, migrated_file: Path, tmp_path: Path, engine: RunningEngine
):
    assert explore(site) == "no live trial is proposed that its share of tokens allows"
    propose(site, replace(TRIAL, by=Evidence.REPLAY, most_token_share=0.0, win_share=0.0))
    assert explore(site) == "no live trial is proposed that its share of tokens allows"
    with site_on(migrated_file, tmp_path, engine.url) as quiet:
        assert "live trials are off" in explore(quiet)

    propose(site, replace(TRIAL, win_share=1.0))
    assert explore(site) == "draft_model k=3 on trial on chat at load 1 for this window"


def test_every_draw_is_on_record_and_can_be_made_again(site: Site, clock: Clock):
    propose(site)
    for _ in range(12):
        explore(site)
        clock.now_s += 60

    draws = [one for one in log(site) if one.seed is not None]
    assert len(draws) == 12
    for one in draws:
        chosen = drawn(one.chances, int(one.seed or 0))
        in_force = one.plan.setting_for("chat", ONE)
        assert in_force == (OFF if chosen is None else chosen[1])
        assert one.chance_at(("chat", ONE), one.until_s or 0.0).of(DRAFT_3) == 0.5
    ran = [one.plan.setting_for("chat", ONE) == DRAFT_3 for one in draws]
    assert 0 < sum(ran) < 12


def test_a_draw_can_be_made_again_beside_places_without_a_choice(site: Site, clock: Clock):
    """A place of the plan that nothing is tried on stands in the log of a decision too."""
    story = PlanEntry(route="story", load=ONE, setting=DRAFT_3)
    chat = PlanEntry(route="chat", load=TWO, setting=LOOKUP_5)
    site.actuator.apply(Plan(entries=(story, chat)), live(site).digest)
    propose(site, TRIAL, replace(TRIAL, load=TWO, win_share=0.9))
    for _ in range(12):
        explore(site)
        clock.now_s += 60

    draws = [one for one in log(site) if one.seed is not None]
    found = [drawn(one.chances, int(one.seed or 0)) for one in draws]
    assert {None, (("chat", ONE), DRAFT_3), (("chat", TWO), DRAFT_3)} == set(found)
    for one, chosen in zip(draws, found, strict=True):
        for place in (("chat", ONE), ("chat", TWO)):
            is_tried = one.plan.setting_for(*place) == DRAFT_3
            assert is_tried == (chosen is not None and chosen[0] == place)


def test_nothing_is_drawn_while_the_journal_is_not_read(
    site: Site, migrated_file: Path, tmp_path: Path, engine: RunningEngine, clock: Clock
):
    propose(site, replace(TRIAL, win_share=1.0))
    clock.now_s += 60

    with site_on(migrated_file, tmp_path, engine.url, clock, explore_live=True) as strict:
        assert "was last read 60 s ago, so that its tokens are not counted" in explore(strict)
    assert live(site).digest == Plan().digest


def test_a_trial_lasts_for_its_window_and_the_next_one_is_drawn_for_anew(site: Site, clock: Clock):
    propose(site, replace(TRIAL, win_share=1.0))
    explore(site)
    assert live(site).setting_for("chat", ONE) == DRAFT_3
    clock.now_s += 59
    assert explore(site) == "draft_model k=3 is on trial on chat"

    propose(site, replace(TRIAL, win_share=0.0))
    clock.now_s += 1
    assert explore(site) == "no live trial is proposed that its share of tokens allows"

    assert live(site).setting_for("chat", ONE) == OFF


def test_chances_hold_for_the_window_that_was_drawn_for_only(site: Site, clock: Clock):
    propose(site, replace(TRIAL, win_share=1e-9))
    began_s = clock.now_s
    explore(site)
    watch_drift_noting(site)

    (one,) = [one for one in log(site) if one.seed is not None]
    assert one.chance_at(("chat", ONE), began_s + 60).of(DRAFT_3) == 1e-9
    assert one.chance_at(("chat", ONE), began_s + 120).of(DRAFT_3) == 0.0


def watch_drift_noting(site: Site) -> None:
    """Note the plan found in force, as the service does every half minute."""
    before = len(log(site))
    watch_drift(site)
    assert len(log(site)) == before


def test_a_window_that_has_begun_long_ago_is_not_drawn_for(site: Site, clock: Clock):
    propose(site, replace(TRIAL, win_share=1.0))
    clock.now_s += 10

    assert explore(site) == "the window is too old for a draw; the next one is not"
    assert live(site).digest == Plan().digest


def test_places_share_the_windows(site: Site):
    propose(site, TRIAL, replace(TRIAL, load=TWO, win_share=0.25))
    explore(site)

    (one,) = [one for one in log(site) if one.seed is not None]
    assert one.chance_at(("chat", ONE)).of(DRAFT_3) == 0.25
    assert one.chance_at(("chat", TWO)).of(DRAFT_3) == 0.125
