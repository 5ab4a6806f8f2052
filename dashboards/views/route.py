"""What the page of one route shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from collectors.records import LoadLevel, Method, Setting
from dashboards.views.drift import AlarmLine
from dashboards.views.recommendation import RecommendationLine
from dashboards.views.traffic import Cell, InForce
from policy.types import Evidence, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionPoint:
    """Acceptance at one draft position, given that all positions before it were accepted.

    Attributes:
        position: draft position, from 1.
        attempts: passes that reached it.
        accepts: attempts that were accepted.
        rate: estimate with its 90 % interval; None without attempts.
    """

    position: int
    attempts: int
    accepts: int
    rate: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionCurve:
    """Acceptance by position of one method on one route, from one kind of evidence."""

    method: Method
    evidence: Evidence
    points: tuple[PositionPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """What one Setting did on one route at one load level, from one kind of evidence.

    Attributes are those of :class:`Cell`.
    """

    setting: Setting
    load: LoadLevel
    evidence: Evidence
    passes: int
    drafted: int
    accepted: int
    tokens: int
    acceptance_rate: float | None
    acceptance_length: float | None
    tokens_per_pass: float | None
    coverage: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """One window of a route's live traffic.

    Attributes:
        at: end of the window.
        passes: target passes.
        tokens_per_pass: tokens per target pass; None in a window without passes.
        acceptance_rate: A / D; None in a window without drafts.
    """

    at: datetime
    passes: int
    tokens_per_pass: float | None
    acceptance_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """Measured time of target passes of one shape.

    Attributes:
        rows: sequences in the pass.
        positions: positions computed.
        context_tokens: KV entries held, middle of the bucket.
        steps: passes measured.
        mean_s: mean time.
        deviation_s: standard deviation of single passes; None below two.
    """

    rows: int
    positions: int
    context_tokens: int
    steps: int
    mean_s: float
    deviation_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRow:
    """Measured time of drafting rounds of one method and shape."""

    method: Method
    rows: int
    depth: int
    rounds: int
    mean_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteView:
    """The page of one route.

    Attributes:
        name: route name.
        period_s: length of the window asked for.
        start: start of the window; None before the first observation.
        end: end of the window.
        cells: by load level.
        settings: what each Setting did, by evidence.
        curves: acceptance by position.
        history: windows, oldest first.
        costs: measured target passes, all routes (a pass is shared).
        draft_costs: measured drafting rounds.
        recommendations: the route's recommendations, newest first.
        alarms: drift of the route or the whole engine that lasts and that nobody acknowledged.
        in_force: what recommendations brought into force here, predicted beside measured.
        snoozed: what was refused here and stays away for now, one sentence each.
    """

    name: str
    period_s: int
    start: datetime | None
    end: datetime | None
    cells: tuple[Cell, ...]
    settings: tuple[SettingRow, ...]
    curves: tuple[PositionCurve, ...]
    history: tuple[HistoryPoint, ...]
    costs: tuple[CostRow, ...]
    draft_costs: tuple[DraftRow, ...]
    recommendations: tuple[RecommendationLine, ...]
    alarms: tuple[AlarmLine, ...]
    in_force: tuple[InForce, ...]
    snoozed: tuple[str, ...]
