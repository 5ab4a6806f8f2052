from __future__ import annotations

import threading
import time

from collectors.records import EngineSample, Plan
from tests.tuner.api.console_seeding import DRAFT, ENGINE, PLAN, utc_now
from tuner.api.live_plan import RETRY_S, LivePlanReader
from tuner.errors import EngineUnreachable
from tuner.store import Store, samples


class Engine:
    """An engine's answers, and how often it was asked."""

    def __init__(self, plan: Plan | None) -> None:
        self.plan = plan
        self.asked = 0

    def read_back(self) -> Plan:
        self.asked += 1
        if self.plan is None:
            raise EngineUnreachable("engine bundled did not answer")
        return self.plan


def name_plan(store: Store, plan: Plan) -> None:
    sample = EngineSample(
        at=utc_now().timestamp(),
        engine=ENGINE,
        boot_id="boot-1",
        running=0,
        waiting=0,
        kv_used_ratio=0.0,
        plan_digest=plan.digest,
    )
    with store.writing() as session:
        samples.add_engine(session, sample)


def test_a_plan_applied_here_is_known_without_asking(full_store: Store) -> None:
    engine = Engine(None)
    found = LivePlanReader(full_store, ENGINE, engine.read_back, time.monotonic).read()
    assert found.plan == PLAN
    assert found.problem is None
    assert engine.asked == 0


def test_a_plan_set_past_the_service_is_shown_with_a_warning_and_asked_for_once(
    full_store: Store,
) -> None:
    foreign = Plan(default=DRAFT)
    name_plan(full_store, foreign)
    engine = Engine(foreign)
    reader = LivePlanReader(full_store, ENGINE, engine.read_back, time.monotonic)
    for _ in range(3):
        found = reader.read()
        assert found.plan == foreign
        assert found.problem is not None
        assert "set past this service" in found.problem
    assert engine.asked == 1


def test_an_engine_that_does_not_answer_is_asked_again_only_after_a_while(store: Store) -> None:
    name_plan(store, Plan(default=DRAFT))
    engine, now_s = Engine(None), [0.0]
    reader = LivePlanReader(store, ENGINE, engine.read_back, lambda: now_s[0])
    for _ in range(3):
        found = reader.read()
        assert found.plan is None
        assert found.problem == "the live plan is unknown: engine bundled did not answer"
    assert engine.asked == 1
    engine.plan, now_s[0] = Plan(default=DRAFT), RETRY_S
    assert reader.read().plan == engine.plan
    assert engine.asked == 2


def test_an_engine_that_hangs_holds_a_page_only_for_a_moment(store: Store) -> None:
    released = threading.Event()

    def hang() -> Plan:
        released.wait(600)
        return Plan()

    reader = LivePlanReader(store, ENGINE, hang, time.monotonic)
    found = reader.read()
    assert found.problem == "the live plan is unknown: the engine has not answered yet"
    released.set()
    deadline_s = time.monotonic() + 60
    while reader.read().plan is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert reader.read().plan == Plan()
