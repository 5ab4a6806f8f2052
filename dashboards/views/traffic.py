"""What the overview shows: routes by load level, engine totals, health of the watch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from collectors.records import LoadLevel, Setting
from dashboards.views.drift import AlarmLine
from policy.outcome import Outcome
from policy.types import Advice, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The newest recommendation for one route at one load level.

    Attributes:
        recommendation_id: number of the recommendation.
        state: its state, such as ``pending`` or ``promoted``.
        advice: change, no change, or not enough data.
        setting: Setting recommended; None where the policy did not speak of this load level.
        is_change: whether that differs from what was in force when it was said.
        gain: predicted relative change of the engine's total; None likewise.
    """

    recommendation_id: int
    state: str
    advice: Advice
    setting: Setting | None
    is_change: bool
    gain: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one route saw at one load level within the window, all live Settings together.

    Attributes:
        route: route name.
        load: load level.
        requests: finished requests, cancelled and failed ones left out.
        passes: target passes seen by sequences (P).
        verify_passes: passes with at least one draft token (V).
        drafted: draft tokens verified (D).
        accepted: draft tokens kept (A).
        tokens: tokens delivered (G).
        acceptance_rate: A / D, 0 to 1.
        acceptance_length: 1 + A / V, in tokens.
        tokens_per_pass: tokens per target pass.
        coverage: V / P, 0 to 1.
        request_tokens_per_s: tokens per second of one request after its first token.
        ttft_p50_s: median time to first token.
        ttft_p95_s: 95th percentile of the same.
        tpot_p50_s: median time per output token.
        tpot_p95_s: 95th percentile of the same.
        settings_seen: Settings in force within the window, the most used first.
        live: Setting in force now; None where the live plan could not be read.
        proposal: what is recommended; None where nothing was.
    """

    route: str
    load: LoadLevel
    requests: int
    passes: int
    verify_passes: int
    drafted: int
    accepted: int
    tokens: int
    acceptance_rate: float | None
    acceptance_length: float | None
    tokens_per_pass: float | None
    coverage: float | None
    request_tokens_per_s: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    settings_seen: tuple[Setting, ...]
    live: Setting | None
    proposal: Proposal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTotal:
    """What the engine did at one load level within the window.

    Attributes:
        load: load level.
        steps: engine steps.
        busy_s: their summed time.
        tokens: tokens delivered.
        tokens_per_s: tokens per second of busy time.
        mean_step_s: mean time of a step.
    """

    load: LoadLevel
    steps: int
    busy_s: float
    tokens: int
    tokens_per_s: float | None
    mean_step_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHealth:
    """How well an engine is being watched.

    Attributes:
        engine: engine name.
        url: where it is read.
        boot_id: start of the engine that was last read; None before the first pull.
        last_pull_at: end of the last pull that succeeded; None before the first.
        cursor: newest sequence number stored.
        lost_steps: journal records overwritten before they were read, since the service began.
        plan_version: version of the plan last applied; None where none was.
        plan_digest: its digest.
        is_stale: True where the last pull is older than the limit; decisions then stand still.
        problem: what is wrong, one line; None where nothing is.
    """

    engine: str
    url: str
    boot_id: str | None
    last_pull_at: datetime | None
    cursor: int
    lost_steps: int
    plan_version: int | None
    plan_digest: str | None
    is_stale: bool
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """What is in force on one route at one load level by a recommendation, and what it brings.

    Attributes:
        recommendation_id: the recommendation.
        route: route name.
        load: the load level.
        setting: Setting in force.
        predicted: predicted ratio, of the figure that is measured where one is.
        outcome: predicted beside measured; None where too little was measured.
        is_missed: whether the measured interval has nothing in common with the predicted one.
    """

    recommendation_id: int
    route: str
    load: LoadLevel
    setting: Setting
    predicted: Interval
    outcome: Outcome | None
    is_missed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The route that loses most, and why.

    Attributes:
        route: route name.
        loss: share lost of what could be had, or of requests beyond a limit, 0 to 1.
        line: one sentence.
        recommendation_id: recommendation that tells more; None where none does.
    """

    route: str
    loss: float
    line: str
    recommendation_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AutopilotLine:
    """A route with an envelope of the control loop.

    Attributes:
        engine: engine name.
        route: route name.
        is_active: whether the loop acts on it now.
        changes: entries of the plan that the loop changed since the envelope was approved.
        fallbacks: times that it fell back by itself since then.
    """

    engine: str
    route: str
    is_active: bool
    changes: int
    fallbacks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The first page.

    Attributes:
        at: when it was read.
        period_s: length of the window asked for.
        start: start of the window; None before the first observation.
        end: end of the window.
        engines: health, one entry an engine.
        cells: by route, then load level.
        loads: engine totals by load level.
        waiting: recommendations of a change that wait for a decision.
        alarms: drift that lasts and that nobody acknowledged.
        last_traffic_at: when the newest step ran that is known of; None before the first.
        worst: the route that loses most against its best legal answer, breaks a limit or missed a
            prediction; None where none is known to.
        in_force: what recommendations brought into force, predicted beside measured.
        autopilot: routes with an envelope of the control loop, by name.
    """

    at: datetime
    period_s: int
    start: datetime | None
    end: datetime | None
    engines: tuple[EngineHealth, ...]
    cells: tuple[Cell, ...]
    loads: tuple[LoadTotal, ...]
    waiting: int
    alarms: tuple[AlarmLine, ...]
    last_traffic_at: datetime | None
    worst: Worst | None
    in_force: tuple[InForce, ...]
    autopilot: tuple[AutopilotLine, ...] = ()
