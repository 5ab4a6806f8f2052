from __future__ import annotations

from datetime import UTC, datetime

from collectors.records import Method
from dashboards.charts import curve_chart, history_chart, position_chart
from dashboards.views import HistoryPoint, PositionCurve, PositionPoint
from policy.types import AcceptanceCurve, Evidence, Interval

RATE = Interval(low=0.7, mean=0.8, high=0.9)


def curve(method: Method, rates: tuple[Interval | None, ...]) -> PositionCurve:
    points = tuple(
        PositionPoint(position=place, attempts=10, accepts=8, rate=rate)
        for place, rate in enumerate(rates, start=1)
    )
    return PositionCurve(method=method, evidence=Evidence.LIVE, points=points)


def test_curves_of_different_depth_are_padded_with_gaps() -> None:
    chart = position_chart(
        [curve(Method.DRAFT_MODEL, (RATE,)), curve(Method.PROMPT_LOOKUP, (RATE, None, RATE))]
    )
    assert chart["x"] == [1, 2, 3]
    first, second = chart["series"]
    assert first["mean"] == [0.8, None, None]
    assert second["mean"] == [0.8, None, 0.8]
    assert second["high"] == [0.9, None, 0.9]


def test_no_curve_is_an_empty_chart() -> None:
    assert position_chart([])["x"] == curve_chart([])["x"] == []


def test_the_curves_that_the_policy_used_keep_their_intervals() -> None:
    used = AcceptanceCurve(
        method=Method.DRAFT_MODEL,
        conditional=(RATE, RATE),
        attempts=(10.0, 8.0),
        coverage=1.0,
        evidence=(Evidence.LIVE,),
    )
    chart = curve_chart([used])
    assert chart["series"][0]["low"] == [0.7, 0.7]


def test_a_window_without_traffic_is_a_gap_in_the_history() -> None:
    at = datetime(2026, 11, 30, tzinfo=UTC)
    quiet = HistoryPoint(at=at, passes=0, tokens_per_pass=None, acceptance_rate=None)
    busy = HistoryPoint(at=at, passes=9, tokens_per_pass=2.5, acceptance_rate=0.5)
    chart = history_chart([quiet, busy])
    assert chart["x"] == [at.timestamp()] * 2
    assert chart["series"][0]["mean"] == [None, 2.5]
