"""A console on a real store, and ways to call it over a real socket."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from collectors.records import Plan
from dashboards.access import Role
from dashboards.console import Act
from dashboards.views import GateLine, JobLine
from tests.tuner.api.console_seeding import ENGINE, PLAN, utc_now
from tuner.api.auth import TokenDoorkeeper
from tuner.api.console import StoreConsole
from tuner.api.http import Parts
from tuner.api.live_plan import LivePlanReader
from tuner.api.tokens import issue
from tuner.api.traffic import TrafficReader
from tuner.errors import EngineUnreachable
from tuner.metrics import ServiceMetrics
from tuner.settings import Settings
from tuner.store import Store, recommendations
from tuner.store.recommendations import State, StoredRecommendation
from tuner.workflows.evaluate import proposed_settings
from tuner.workflows.outdated import require_current

MOVES = {
    Act.APPROVE: (State.APPROVED, State.STAGED, State.PROMOTED),
    Act.REJECT: (State.REJECTED,),
    Act.HOLD: (State.HELD,),
    Act.ROLL_BACK: (State.ROLLED_BACK,),
}

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Made once: a client makes its own otherwise, which takes longer than most tests."""


@dataclass
class StoreReview:
    """Moves recommendations in the store; there is no engine behind it."""

    store: Store
    engine_answers: bool = True

    def together(self, numbers: Sequence[int], *, who: str, why: str) -> None:
        for number in numbers:
            self(number, Act.APPROVE, who=who, why=why)

    def __call__(
        self, number: int, act: Act, *, who: str, why: str, revision: int | None = None
    ) -> None:
        with self.store.writing() as session:
            require_current(session, recommendations.one(session, number), revision)
            for state in MOVES[act]:
                recommendations.move(session, number, state, who=who, at=utc_now(), why=why)
            if not self.engine_answers:
                raise EngineUnreachable("engine http://127.0.0.1:8401 did not answer; start it")


@dataclass
class StoreGatekeeper:
    """Answers for the gate without an engine: nothing was replayed, and asking is counted."""

    asked: list[str] = field(default_factory=list)

    def lines(self, stored: StoredRecommendation) -> tuple[GateLine, ...]:
        return tuple(
            GateLine(
                route=stored.route,
                setting=setting,
                is_open=False,
                reason=f"{setting.label} on {stored.route} did not pass: too few pairs",
                findings=(),
                note="speed at load 5-8 was not replayed",
                at=None,
                replay=None,
                divergence=None,
                is_running=bool(self.asked),
                progress="12 of 20 pairs" if self.asked else "",
            )
            for setting in proposed_settings(stored)
        )

    def run(self, stored: StoredRecommendation, *, who: str) -> int:
        self.asked.append(who)
        return 1 if len(self.asked) == 1 else 0


@dataclass
class Served:
    """A console on a real store, served over a real socket."""

    url: str
    store: Store
    settings: Settings
    review: StoreReview
    tokens: dict[Role, str] = field(default_factory=dict)

    @contextmanager
    def browser(self, role: Role | None = None) -> Iterator[httpx.Client]:
        client = httpx.Client(base_url=self.url, trust_env=False, verify=NO_TLS, timeout=60)
        with client:
            if role is not None:
                answer = client.get("/sign-in", params={"token": self.tokens[role]})
                assert answer.status_code == 200
            yield client

    def api(self, role: Role) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.tokens[role]}"}
        return httpx.Client(
            base_url=self.url, trust_env=False, verify=NO_TLS, timeout=60, headers=headers
        )


def served_on(store: Store, settings: Settings) -> Served:
    served = Served(
        url=f"http://127.0.0.1:{settings.port}",
        store=store,
        settings=settings,
        review=StoreReview(store),
    )
    for role in Role:
        served.tokens[role] = issue(store, name=f"{role} token", role=role, at=utc_now(), by="test")
    return served


def parts_of(store: Store, settings: Settings, review: StoreReview) -> Parts:
    def read_back() -> Plan:
        return PLAN

    live = LivePlanReader(store, ENGINE, read_back, time.monotonic)
    traffic = TrafficReader(store=store, settings=settings, live=live, now=utc_now)
    timetable = (
        JobLine(name="ingest", schedule="every 1 s", does="Pull the engine's journal.", last=None),
        JobLine(name="replay", schedule="every hour", does="Replay captured prompts.", last=None),
    )
    console = StoreConsole(
        store=store,
        traffic=traffic,
        review=review,
        timetable=timetable,
        now=utc_now,
        gatekeeper=StoreGatekeeper(),
    )
    doorkeeper = TokenDoorkeeper(store, settings, "s" * 48, utc_now, time.monotonic)
    return Parts(
        settings=settings,
        console=console,
        doorkeeper=doorkeeper,
        metrics=ServiceMetrics(),
        problem=lambda: None,
        now=utc_now,
    )
