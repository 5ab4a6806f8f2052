"""From windows to acceptance by position, rows by Setting, cost rows and the route's history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from collectors.records import Method
from dashboards.views import (
    CostRow,
    DraftRow,
    HistoryPoint,
    PositionCurve,
    PositionPoint,
    SettingRow,
)
from policy.statistics import wilson_interval
from policy.types import Evidence, Observation, StepCost, Window
from tuner.api.sums import (
    draft_costs_summed,
    grouped,
    observations_summed,
    step_costs_summed,
)

_EVIDENCE_ORDER = {evidence: place for place, evidence in enumerate(Evidence)}
_METHOD_ORDER = {method: place for place, method in enumerate(Method)}


def curves_of(seen: Sequence[Observation]) -> tuple[PositionCurve, ...]:
    """Return acceptance by position of each method and kind of evidence, counted."""
    drafting = [one for one in seen if any(one.attempts)]
    groups = grouped(drafting, lambda one: (one.setting.method, one.evidence))
    places = sorted(groups, key=lambda key: (_EVIDENCE_ORDER[key[1]], _METHOD_ORDER[key[0]]))
    return tuple(
        PositionCurve(method=method, evidence=evidence, points=_points(groups[method, evidence]))
        for method, evidence in places
    )


def setting_rows(seen: Sequence[Observation]) -> tuple[SettingRow, ...]:
    """Return what each Setting did at each load level, by kind of evidence."""
    groups = grouped(seen, lambda one: (one.setting, one.load, one.evidence))
    rows = [_setting_row(observations_summed(records)) for records in groups.values()]
    return tuple(sorted(rows, key=_row_order))


def history_of(windows: Sequence[Window], route: str) -> tuple[HistoryPoint, ...]:
    """Return live tokens per pass by window, oldest first; None where a window had none."""
    points = []
    for window in windows:
        live = [
            one
            for one in window.observations
            if one.route == route and one.evidence is Evidence.LIVE
        ]
        total = observations_summed(live) if live else None
        points.append(
            HistoryPoint(
                at=datetime.fromtimestamp(window.end_s, UTC),
                passes=total.passes if total else 0,
                tokens_per_pass=total.tokens_per_pass if total else None,
                acceptance_rate=total.acceptance_rate if total else None,
            )
        )
    return tuple(points)


def cost_rows(windows: Sequence[Window]) -> tuple[CostRow, ...]:
    """Return measured target passes by shape."""
    costs = step_costs_summed(cost for window in windows for cost in window.step_costs)
    return tuple(
        CostRow(
            rows=cost.rows,
            positions=cost.positions,
            context_tokens=cost.context_tokens,
            steps=cost.steps,
            mean_s=cost.total_s / cost.steps,
            deviation_s=_deviation_s(cost),
        )
        for cost in costs
        if cost.steps
    )


def draft_rows(windows: Sequence[Window]) -> tuple[DraftRow, ...]:
    """Return measured drafting rounds by method and shape."""
    costs = draft_costs_summed(cost for window in windows for cost in window.draft_costs)
    return tuple(
        DraftRow(
            method=cost.method,
            rows=cost.rows,
            depth=cost.depth,
            rounds=cost.rounds,
            mean_s=cost.total_s / cost.rounds,
        )
        for cost in costs
        if cost.rounds
    )


def _points(records: Sequence[Observation]) -> tuple[PositionPoint, ...]:
    total = observations_summed(records)
    return tuple(
        PositionPoint(
            position=place,
            attempts=attempts,
            accepts=accepts,
            rate=wilson_interval(accepts, attempts),
        )
        for place, (attempts, accepts) in enumerate(
            zip(total.attempts, total.accepts, strict=True), start=1
        )
    )


def _setting_row(total: Observation) -> SettingRow:
    return SettingRow(
        setting=total.setting,
        load=total.load,
        evidence=total.evidence,
        passes=total.passes,
        drafted=total.drafted,
        accepted=total.accepted,
        tokens=total.tokens,
        acceptance_rate=total.acceptance_rate,
        acceptance_length=total.acceptance_length,
        tokens_per_pass=total.tokens_per_pass,
        coverage=total.coverage,
    )


def _row_order(row: SettingRow) -> tuple[int, int, int, int]:
    method = _METHOD_ORDER[row.setting.method]
    return _EVIDENCE_ORDER[row.evidence], row.load.low, method, row.setting.k


def _deviation_s(cost: StepCost) -> float | None:
    if cost.steps < 2:
        return None
    mean_s = cost.total_s / cost.steps
    variance = (cost.total_square_s2 - cost.steps * mean_s * mean_s) / (cost.steps - 1)
    return math.sqrt(max(0.0, variance))
