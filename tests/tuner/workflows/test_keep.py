"""The last approved plan stays in force: over restarts, lost answers and kills."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import Plan
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import LOAD_1, change, plan, said
from tests.fixtures.sites import Clock, site_on
from tests.tuner.engine.server.running import RunningEngine, running_engine, tiny_settings
from tuner.errors import PlanRefused
from tuner.store import plans, recommendations
from tuner.store.plans import Outcome
from tuner.store.recommendations import State
from tuner.workflows.apply import Intent, apply, begin, send
from tuner.workflows.keep import SETTLE_AFTER_S, keep_plan
from tuner.workflows.review import approve
from tuner.workflows.site import Site

WANTED = plan(("chat", LOAD_1, DRAFT_3))


def approved(site: Site, before: Plan) -> int:
    """Leave an approval behind as a service killed in its middle would."""
    with site.store.writing() as session:
        stored = recommendations.add(
            session, site.engine, said(), before, who="recommend", at=site.now()
        )
        assert stored is not None
        recommendations.move(
            session, stored.id, State.APPROVED, who="ann", at=site.now(), why="approved"
        )
        begin(site, session, intent(before, stored.id))
    return stored.id


def intent(before: Plan, number: int | None = None) -> Intent:
    return Intent(plan=WANTED, before=before, recommendation=number, who="ann", why="approved")


def later(site: Site, seconds: float = SETTLE_AFTER_S + 1) -> Site:
    return replace(site, clock=Clock(site.clock() + seconds))


def state(site: Site, number: int) -> State:
    with site.store.reading() as session:
        return recommendations.one(session, number).state


def test_nothing_to_keep_is_said_in_a_line(site: Site):
    assert keep_plan(site).startswith(f"plan {Plan().digest[:12]} version")


def test_an_engine_that_restarted_gets_its_plan_back(
    site: Site, migrated_file: Path, tmp_path: Path, fresh_engine: RunningEngine
):
    apply(site, intent(site.actuator.read_back()))
    with site_on(migrated_file, tmp_path, fresh_engine.url) as restarted:
        assert restarted.actuator.read_back().version == 0

        assert "restored" in keep_plan(restarted)

        assert restarted.actuator.read_back().digest == WANTED.digest
        assert "is live" in keep_plan(restarted)


def test_a_plan_that_a_restarted_engine_refuses_is_not_offered_again_and_again(
    site: Site, migrated_file: Path, tmp_path: Path, tiny_model: Path
):
    apply(site, intent(site.actuator.read_back()))
    bare = replace(tiny_settings(tiny_model), draft="none")
    with (
        running_engine(bare) as undrafted,
        site_on(migrated_file, tmp_path, undrafted.url) as restarted,
    ):
        with pytest.raises(PlanRefused, match="draft_model"):
            keep_plan(restarted)

        assert "is not restored" in keep_plan(restarted)

        with restarted.store.reading() as session:
            changes = plans.listed(session, restarted.engine)
        assert [one.outcome for one in changes] == [Outcome.FAILED, Outcome.APPLIED]


def test_a_plan_that_somebody_else_set_is_left_alone(site: Site):
    apply(site, intent(site.actuator.read_back()))
    other = plan(("story", LOAD_1, LOOKUP_5))
    site.actuator.apply(other, WANTED.digest)

    keep_plan(site)

    assert site.actuator.read_back().digest == other.digest


def test_an_approval_that_was_killed_after_the_plan_was_sent_is_promoted(site: Site):
    before = site.actuator.read_back()
    number = approved(site, before)
    send(site, intent(before))

    assert "turned out applied" in keep_plan(later(site))

    assert state(site, number) is State.PROMOTED
    with site.store.reading() as session:
        latest = plans.latest_applied(session, site.engine)
    assert latest is not None
    assert latest.before.digest == before.digest


def test_an_approval_that_was_killed_before_the_plan_was_sent_is_put_back(site: Site):
    number = approved(site, site.actuator.read_back())

    assert "turned out failed" in keep_plan(later(site))

    assert state(site, number) is State.PENDING
    assert approve(site, number, who="bob").state is State.PROMOTED


def test_an_approval_that_was_killed_counts_as_applied_though_another_route_changed_since(
    site: Site,
):
    before = site.actuator.read_back()
    number = approved(site, before)
    send(site, intent(before))
    with site.store.writing() as session:
        other = recommendations.add(
            session, site.engine, said("story"), WANTED, who="recommend", at=site.now()
        )
    assert other is not None
    approve(site, other.id, who="bob")

    assert "turned out applied" in keep_plan(later(site))

    assert state(site, number) is State.PROMOTED


def test_a_change_that_may_still_be_at_work_is_left_alone(site: Site):
    number = approved(site, site.actuator.read_back())

    keep_plan(site)

    assert state(site, number) is State.APPROVED


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_roll_back_that_was_killed_is_settled_either_way(site: Site, is_sent: bool):
    with site.store.writing() as session:
        stored = recommendations.add(
            session, site.engine, said("chat", change()), Plan(), who="recommend", at=site.now()
        )
    assert stored is not None
    approve(site, stored.id, who="ann")
    live = site.actuator.read_back()
    back = Intent(plan=Plan(), before=live, recommendation=stored.id, who="ann", why="no")
    with site.store.writing() as session:
        begin(site, session, back)
    if is_sent:
        send(site, back)

    keep_plan(later(site))

    expected = State.ROLLED_BACK if is_sent else State.PROMOTED
    assert state(site, stored.id) is expected
    with site.store.reading() as session:
        newest = plans.listed(session, site.engine)[0].outcome
    assert newest is (Outcome.APPLIED if is_sent else Outcome.FAILED)
