"""What an operator decides about a place holds, whatever is on trial there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectors.records import OFF, Plan
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import LOAD_1, LOAD_2, change, said
from tests.fixtures.sites import Clock
from tests.tuner.workflows.test_review import add, live
from tests.tuner.workflows.test_trial import TRIAL, clock, site
from tuner.errors import StateChanged
from tuner.store import plans, trials
from tuner.workflows.keep import keep_plan
from tuner.workflows.review import approve, reject, roll_back
from tuner.workflows.site import Site
from tuner.workflows.trial import running, start

__all__ = ["clock", "site"]
LOOKUP_TRIAL = replace(TRIAL, setting=LOOKUP_5)


def last_reason(site: Site) -> str | None:
    with site.store.reading() as session:
        return trials.since(session, site.engine, 0.0)[-1].reason


@pytest.mark.parametrize("tried", [TRIAL, LOOKUP_TRIAL])
def test_an_approval_takes_the_place_of_a_trial_and_stays(site: Site, clock: Clock, tried):
    """Whether the Setting approved is the one on trial or another."""
    number = add(site, said("chat", change(DRAFT_3)))
    begun = start(site, "chat", tried, who="explore")

    approve(site, number, who="ann")

    clock.now_s = begun.end_s + 1
    keep_plan(site)
    assert live(site).setting_for("chat", LOAD_1) == DRAFT_3
    assert last_reason(site) == "its place was decided about"
    with site.store.reading() as session:
        change_made = plans.latest_applied(session, site.engine)
    assert change_made is not None
    assert change_made.before.digest == Plan().digest


def test_a_rollback_to_what_is_on_trial_stays(site: Site, clock: Clock):
    number = add(site, said("chat", change(DRAFT_3, LOOKUP_5)))
    site.actuator.apply(Plan(default=LOOKUP_5), live(site).digest)
    approve(site, number, who="ann")
    begun = start(site, "chat", LOOKUP_TRIAL, who="explore")

    roll_back(site, number, who="ann", why="slower")

    clock.now_s = begun.end_s + 1
    keep_plan(site)
    assert live(site).setting_for("chat", LOAD_1) == LOOKUP_5


def test_a_decision_about_another_place_lets_a_trial_go_on(site: Site, clock: Clock):
    number = add(site, said("chat", change(LOOKUP_5, load=LOAD_2)))
    begun = start(site, "chat", TRIAL, who="explore")

    approve(site, number, who="ann")

    assert running(site, live(site)) is not None
    clock.now_s = begun.end_s
    keep_plan(site)
    assert live(site).setting_for("chat", LOAD_1) == OFF
    assert live(site).setting_for("chat", LOAD_2) == LOOKUP_5


def test_an_approval_that_is_refused_leaves_a_trial_alone(site: Site):
    number = add(site, said("chat", change(LOOKUP_5)))
    reject(site, number, who="ann", why="no")
    start(site, "chat", TRIAL, who="explore")

    with pytest.raises(StateChanged):
        approve(site, number, who="ann")

    assert running(site, live(site)) is not None
