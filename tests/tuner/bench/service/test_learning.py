"""Gate and approvals by rule, and bringing arms into force, on a real engine."""

from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import OFF, Method, Plan, Setting
from policy.types import Recommendation
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import LOAD_1, change, plan, said
from tests.fixtures.sites import site_on
from tests.tuner.engine.server.running import RunningEngine
from tests.tuner.workflows.conftest import engine, long_engine, migrated_file, site, tiny_model
from tuner.bench.service.arms import Arm, arms_of, bring_into_force, require_settings
from tuner.bench.service.learning import arrive
from tuner.bench.service.options import ServiceBenchOptions
from tuner.errors import BadRequest
from tuner.store import recommendations
from tuner.workflows.site import Site

__all__ = ["engine", "long_engine", "migrated_file", "site", "tiny_model"]

OPTIONS = ServiceBenchOptions(
    fixed=(DRAFT_3, LOOKUP_5), adaptive=replace(DRAFT_3, is_adaptive=True)
)


def add(place: Site, one: Recommendation) -> None:
    with place.store.writing() as session:
        current = place.actuator.read_back()
        recommendations.add(session, place.engine, one, current, who="test", at=place.now())


def test_what_is_recommended_and_may_be_approved_is_the_plan_arrived_at(site: Site) -> None:
    add(site, said("chat", change(DRAFT_3)))
    add(site, said("story", change(LOOKUP_5)))

    learned = arrive(site, gate_s=0.0, say=lambda _: None)

    wanted = plan(("chat", LOAD_1, DRAFT_3), ("story", LOAD_1, LOOKUP_5))
    assert learned.plan.digest == site.actuator.read_back().digest == wanted.digest
    assert len(learned.approved) == 2
    assert learned.refused == ()


def test_what_did_not_pass_the_gate_stays_out_and_is_told(
    migrated_file: Path, tmp_path: Path, engine: RunningEngine
) -> None:
    lines: list[str] = []
    with site_on(migrated_file, tmp_path, engine.url, require_evaluation=True) as strict:
        add(strict, said("chat", change(DRAFT_3)))

        learned = arrive(strict, gate_s=60.0, say=lines.append)

    assert learned.plan.digest == Plan().digest
    assert learned.approved == ()
    assert "not evaluated" in learned.refused[0]
    assert any("Gate: draft_model k=3 on chat was not evaluated" in line for line in lines)


def test_arms_are_off_fixed_settings_the_plan_and_the_adaptive_mode() -> None:
    reviewed = plan(("chat", LOAD_1, DRAFT_3))

    arms = arms_of(OPTIONS, reviewed)

    assert [arm.name for arm in arms] == [
        "off",
        DRAFT_3.label,
        LOOKUP_5.label,
        "reviewed",
        "adaptive",
    ]
    assert arms[0].plan == Plan()
    assert arms[1].plan == Plan(default=DRAFT_3)
    assert arms[3].plan is reviewed
    assert [arm.name for arm in arms_of(replace(OPTIONS, arms=("reviewed",)), reviewed)] == [
        "off",
        "reviewed",
    ]


def test_an_arm_is_in_force_at_once_and_again_changes_nothing(site: Site) -> None:
    arm = Arm(name=LOOKUP_5.label, plan=Plan(default=LOOKUP_5))

    bring_into_force(site, arm)
    version = site.actuator.read_back().version
    bring_into_force(site, arm)

    live = site.actuator.read_back()
    assert (live.digest, live.version) == (arm.plan.digest, version)


def test_a_setting_that_the_engine_cannot_run_is_refused_by_name(site: Site) -> None:
    require_settings(site, replace(OPTIONS, adaptive=OFF))
    with pytest.raises(BadRequest, match="eagle k=3 cannot be measured"):
        require_settings(site, replace(OPTIONS, fixed=(Setting(method=Method.EAGLE, k=3),)))
