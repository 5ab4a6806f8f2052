"""What retention leaves, however short it is set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.records import OFF
from policy.drift_alarms import Alarm, AlarmKind
from policy.types import Window
from tests.fixtures.facts import DRAFT_3
from tests.fixtures.said import LOAD_1
from tests.fixtures.sites import Clock, site_on
from tuner.store import drift, observations, trials
from tuner.store.trials import StoredTrial
from tuner.workflows.observe import history
from tuner.workflows.retain import retain
from tuner.workflows.site import Site

NOWHERE = "http://127.0.0.1:9"
HOUR_S = 3600.0
NOW_S = 100 * 86_400.0


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW_S)


@pytest.fixture
def site(migrated_file: Path, tmp_path: Path, clock: Clock) -> Iterator[Site]:
    """Windows of an hour, eight of which are looked at, kept for a minute and a half."""
    changes = {"window_s": HOUR_S, "history_windows": 8, "retention_days": 0.001}
    with site_on(migrated_file, tmp_path, NOWHERE, clock, **changes) as opened:
        yield opened


def close(site: Site, count: int, newest_end_s: float) -> None:
    with site.store.writing() as session:
        for age in range(count):
            end_s = newest_end_s - age * HOUR_S
            window = Window(start_s=end_s - HOUR_S, end_s=end_s)
            observations.add(session, site.engine, window, site.now())


def test_what_the_policy_looks_at_stays_and_the_alarms_about_it_too(site: Site):
    newest_end_s = NOW_S - 30 * 86_400.0
    close(site, 20, newest_end_s)
    since_s = newest_end_s - 2 * HOUR_S
    alarm = Alarm(
        kind=AlarmKind.DECAY, route="chat", since_s=since_s, seen_s=since_s, saw="", advice=""
    )
    with site.store.writing() as session:
        drift.note_alarms(session, site.engine, [alarm], site.now())
        drift.end_quiet(session, site.engine, newest_end_s + 86_400.0)
    before = history(site, NOW_S)

    assert retain(site).endswith(" 10 older rows")

    assert history(site, NOW_S) == before
    with site.store.reading() as session:
        assert len(drift.alarms(session, site.engine)) == 1


def test_a_trial_of_the_last_day_is_not_forgotten(site: Site):
    """Its tokens count against the share of the day, and so does that it broke limits."""
    for age_s in (86_400.0 - 1, 86_400.0 + 1):
        one = StoredTrial(
            engine=site.engine,
            route="chat",
            load=LOAD_1,
            setting=DRAFT_3,
            former=OFF,
            start_s=NOW_S - age_s - 60,
            end_s=NOW_S - age_s,
            most_tokens=9,
            who="explore",
        )
        with site.store.writing() as session:
            number = trials.add(session, one)
            found = trials.open_on(session, site.engine)
            assert found is not None
            assert found.id == number
            trials.end(session, found, NOW_S - age_s, "its time is over")

    retain(site)

    with site.store.reading() as session:
        (left,) = trials.since(session, site.engine, 0.0)
    assert left.ended_s == NOW_S - 86_400.0 + 1
