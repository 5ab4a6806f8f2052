from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from collectors.records import LatencyHistogram
from dashboards import formatting as shown
from policy.types import Interval

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
GAP = "\u00a0"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 ms"),
        (0.000_42, "0.42 ms"),
        (0.033_33, "33.3 ms"),
        (0.123, "123 ms"),
        (0.9996, "1.00 s"),
        (1.234, "1.23 s"),
        (40.0, "40.0 s"),
        (125.0, "2 min 5 s"),
        (3600.0, "1 h"),
        (90_000.0, "1 d 1 h"),
        (None, "no data"),
        (math.nan, "no data"),
    ],
)
def test_a_time_is_shown_in_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert shown.duration(seconds).replace(GAP, " ") == text


def test_a_quantile_above_the_last_bucket_is_shown_as_above_it() -> None:
    tail = LatencyHistogram.of([400.0] * 5).quantile_s(0.99)
    assert shown.duration(tail) == f">{GAP}127{GAP}s"
    assert shown.quantiles(0.5, tail) == f"500{GAP}ms / >{GAP}127{GAP}s"


def test_two_quantiles_share_a_unit_only_when_they_have_the_same() -> None:
    assert shown.quantiles(0.247, 0.385) == f"247 / 385{GAP}ms"
    assert shown.quantiles(0.9, 1.5) == f"900{GAP}ms / 1.50{GAP}s"
    assert shown.quantiles(None, None) == "no data"


def test_no_data_is_never_shown_as_zero() -> None:
    for write in (shown.count, shown.figure, shown.percent, shown.signed_percent, shown.factor):
        assert write(None) == "no data"
        assert write(0) != "no data"
    assert shown.gain_range(None) == shown.spread(None) == "no data"


def test_a_figure_that_is_not_a_number_is_no_data() -> None:
    assert shown.percent(math.nan) == shown.figure(math.inf) == "no data"
    assert shown.gain_range(Interval(low=math.nan, mean=0.1, high=0.2)) == "no data"


def test_the_interval_of_a_share_is_finer_where_it_is_narrow() -> None:
    assert shown.share_range(Interval(low=0.19, mean=0.3, high=0.41)) == f"19 to 41{GAP}%"
    assert shown.share_range(Interval(low=0.994, mean=0.999, high=1.0)) == f"99.4 to 100.0{GAP}%"
    assert shown.share_range(None) == "no data"


def test_a_change_carries_its_sign_and_zero_has_none() -> None:
    assert shown.signed_percent(0.124) == f"+12.4{GAP}%"
    assert shown.signed_percent(-0.05) == f"\u22125.0{GAP}%"
    assert shown.signed_percent(-0.0001) == f"0.0{GAP}%"


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (timedelta(milliseconds=400), "just now"),
        (timedelta(seconds=3), f"3{GAP}s ago"),
        (timedelta(minutes=30, seconds=6), f"30{GAP}min ago"),
        (timedelta(hours=3, minutes=5), f"3{GAP}h 5{GAP}min ago"),
    ],
)
def test_an_age_is_as_coarse_as_it_is_old(passed: timedelta, text: str) -> None:
    assert shown.age(NOW - passed, NOW) == text


def test_what_never_happened_is_never() -> None:
    assert shown.age(None, NOW) == "never"


def test_a_unix_time_is_shown_to_the_minute() -> None:
    assert shown.minute(NOW.timestamp() + 59.9) == "2026-11-30 12:00"
