"""Mixes and latencies over many windows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from collectors.records import (
    LATENCY_BOUNDS_S,
    OFF,
    FinishReason,
    LatencyHistogram,
    RequestTrace,
    Route,
    load_level_named,
)
from policy.knowledge import Latency, latencies, merged_mixes, newest_s, share_over
from policy.types import RequestObservation
from tests.policy.worlds import END_S, mix, window

ONE = load_level_named("1")
EMPTY = LatencyHistogram()


def test_bursts_do_not_shorten_the_time_per_token() -> None:
    """Chunks at 0, 0.1, 0.2, 0.3 s with 1, 4, 1, 4 tokens."""
    trace = RequestTrace(
        seq=1,
        at=END_S,
        request_id="r",
        route="chat",
        setting=OFF,
        load=ONE,
        prompt_tokens=5,
        completion_tokens=10,
        passes=3,
        drafted=9,
        accepted=6,
        queue_s=0.0,
        ttft_s=0.05,
        duration_s=0.35,
        chunk_gaps=LatencyHistogram.of([0.1, 0.1, 0.1]),
        finish_reason=FinishReason.LENGTH,
    )
    assert trace.tpot_s == pytest.approx(0.3 / 9)
    gap_s = trace.chunk_gaps.quantile_s(0.5)
    assert gap_s is not None
    assert 0.1 <= gap_s < 0.125
    assert trace.chunk_gaps.total_s / trace.chunk_gaps.num_samples == pytest.approx(0.1)


def test_samples_above_the_last_bound_are_over_every_limit() -> None:
    slow = Latency(ttft=LatencyHistogram.of([400.0] * 9), tpot=EMPTY)
    assert slow.high_ttft_s == math.inf
    assert slow.burn_ratio(Route(name="chat", ttft_limit_s=100)) == 1


def test_the_worse_limit_counts_and_no_limit_is_no_burn() -> None:
    seen = Latency(
        ttft=LatencyHistogram.of([0.1] * 9 + [5.0]),
        tpot=LatencyHistogram.of([0.01] * 7 + [1.0] * 3),
    )
    both = Route(name="chat", ttft_limit_s=1.0, tpot_limit_s=0.5)
    assert seen.burn_ratio(both) == pytest.approx(0.3)
    assert seen.burn_ratio(Route(name="chat", ttft_limit_s=1.0)) == pytest.approx(0.1)
    assert seen.burn_ratio(Route(name="chat")) is None
    assert Latency(ttft=EMPTY, tpot=EMPTY).burn_ratio(both) is None


def test_a_bucket_that_holds_the_limit_counts_as_kept() -> None:
    bound = LATENCY_BOUNDS_S[20]
    samples = LatencyHistogram.of([bound])
    assert share_over(samples, bound) == 0
    assert share_over(samples, LATENCY_BOUNDS_S[19]) == 1
    assert share_over(EMPTY, 1.0) is None


def test_latencies_of_one_route_and_level_add_up() -> None:
    one = RequestObservation(
        route="chat",
        setting=OFF,
        load=ONE,
        requests=1,
        completion_tokens=10,
        decode_s=1.0,
        ttft=LatencyHistogram.of([0.1]),
        chunk_gaps=EMPTY,
        tpot=LatencyHistogram.of([0.1]),
    )
    other = replace(one, route="code")
    found = latencies([one, one, other])
    assert found["chat", ONE].ttft.num_samples == 2
    assert found["code", ONE].tpot.num_samples == 1


def test_mixes_are_weighted_by_their_steps_and_age() -> None:
    old = window(mixes=[mix({"a": 4.0})], end_s=END_S - 600)
    new = window(mixes=[mix({"a": 3.0, "b": 1.0})])
    (merged,), ignored = merged_mixes([old, new], now_s=END_S, half_life_s=600)
    assert ignored == ()
    assert merged.steps == 1500
    assert merged.rows_by_route["a"] == pytest.approx((0.5 * 4 + 3) / 1.5)
    assert merged.rows_by_route["b"] == pytest.approx(1 / 1.5)
    assert merged.rows == pytest.approx(4)
    assert not merged.is_lone


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"context_tokens": math.nan},
        {"rows_by_route": {"a": -1.0}},
        {"rows_by_route": {"a": math.inf}},
    ],
    ids=str,
)
def test_impossible_mixes_are_left_out_by_name(wrong: dict[str, object]) -> None:
    bad = replace(mix({"a": 1.0}), **wrong)  # type: ignore[arg-type]
    good = mix({"a": 2.0})
    merged, ignored = merged_mixes([window(mixes=[bad, good])], now_s=END_S, half_life_s=600)
    assert [m.load.label for m in merged] == ["2"]
    assert len(ignored) == 1
    assert "mix at load" in ignored[0]


def test_windows_without_a_time_are_not_the_newest() -> None:
    assert newest_s([window(end_s=5.0), window(end_s=math.nan), window(end_s=3.0)]) == 5
    assert newest_s([window(end_s=math.inf)]) is None
