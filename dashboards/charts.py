"""The data that charts draw, as plain JSON for the page; numbers only, columns of equal length."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.views import HistoryPoint, PositionCurve
from policy.types import AcceptanceCurve


def position_chart(curves: Sequence[PositionCurve]) -> dict[str, object]:
    """Return acceptance by position: one line with an interval a method and kind of evidence."""
    depth = max((len(curve.points) for curve in curves), default=0)
    return {
        "kind": "positions",
        "x": list(range(1, depth + 1)),
        "series": [_counted_line(curve, depth) for curve in curves],
    }


def curve_chart(curves: Sequence[AcceptanceCurve]) -> dict[str, object]:
    """Return the acceptance curves that a recommendation used."""
    depth = max((len(curve.conditional) for curve in curves), default=0)
    return {
        "kind": "positions",
        "x": list(range(1, depth + 1)),
        "series": [_estimated_line(curve, depth) for curve in curves],
    }


def history_chart(points: Sequence[HistoryPoint]) -> dict[str, object]:
    """Return tokens per target pass and acceptance rate over time (Unix seconds)."""
    return {
        "kind": "history",
        "x": [point.at.timestamp() for point in points],
        "series": [
            {"label": "tokens per pass", "mean": [point.tokens_per_pass for point in points]},
            {"label": "acceptance rate", "mean": [point.acceptance_rate for point in points]},
        ],
    }


def _counted_line(curve: PositionCurve, depth: int) -> dict[str, object]:
    rates = [point.rate for point in curve.points]
    padding: list[float | None] = [None] * (depth - len(rates))
    return {
        "label": f"{curve.method} ({curve.evidence})",
        "low": [rate.low if rate else None for rate in rates] + padding,
        "mean": [rate.mean if rate else None for rate in rates] + padding,
        "high": [rate.high if rate else None for rate in rates] + padding,
    }


def _estimated_line(curve: AcceptanceCurve, depth: int) -> dict[str, object]:
    padding: list[float | None] = [None] * (depth - len(curve.conditional))
    return {
        "label": f"{curve.method}",
        "low": [point.low for point in curve.conditional] + padding,
        "mean": [point.mean for point in curve.conditional] + padding,
        "high": [point.high for point in curve.conditional] + padding,
    }
