from __future__ import annotations

from dataclasses import replace

import pytest

from collectors.records import LOAD_LEVELS, OFF, LatencyHistogram, Method, Plan, Setting
from policy.types import (
    Evidence,
    LoadMix,
    Observation,
    RequestObservation,
    StepCost,
    Window,
)
from tuner.api.cells import cells_of, load_totals
from tuner.api.curves import cost_rows, curves_of, history_of, setting_rows
from tuner.api.sums import mixes_summed, observations_summed

DRAFT = Setting(method=Method.DRAFT_MODEL, k=3)
LOAD = LOAD_LEVELS[0]


def observed(
    *,
    passes: int,
    verify: int,
    drafted: int,
    accepts: tuple[int, ...],
    attempts: tuple[int, ...] = (),
    setting: Setting = DRAFT,
    evidence: Evidence = Evidence.LIVE,
) -> Observation:
    return Observation(
        route="chat",
        setting=setting,
        load=LOAD,
        evidence=evidence,
        start_s=0,
        end_s=60,
        passes=passes,
        verify_passes=verify,
        drafted=drafted,
        accepted=sum(accepts),
        tokens=passes + sum(accepts),
        attempts=attempts,
        accepts=accepts,
    )


def window(*seen: Observation, requests: tuple[RequestObservation, ...] = ()) -> Window:
    return Window(start_s=0, end_s=60, observations=seen, requests=requests)


# Ten passes, four of them with three draft tokens of which 3, 0, 2 and 1 were kept.
TEN_PASSES = observed(passes=10, verify=4, drafted=12, accepts=(3, 2, 1), attempts=(4, 3, 2))


def test_a_cell_counts_passes_without_a_draft() -> None:
    (cell,) = cells_of([window(TEN_PASSES)], Plan(), {})
    assert cell.acceptance_rate == 0.5
    assert cell.acceptance_length == 2.5
    assert cell.tokens_per_pass == 1.6
    assert cell.coverage == 0.4


def test_windows_add_up_as_counts_and_never_as_averages_of_rates() -> None:
    rare = observed(passes=1, verify=1, drafted=3, accepts=(0, 0, 0), attempts=(1, 0, 0))
    (cell,) = cells_of([window(TEN_PASSES), window(rare)], Plan(), {})
    assert cell.acceptance_rate == pytest.approx(6 / 15)
    assert cell.passes == 11


def test_replays_and_counterfactuals_never_count_as_live_traffic() -> None:
    shadow = [
        observed(passes=50, verify=50, drafted=150, accepts=(50, 50, 50), evidence=evidence)
        for evidence in (Evidence.REPLAY, Evidence.COUNTERFACTUAL)
    ]
    (cell,) = cells_of([window(TEN_PASSES, *shadow)], Plan(), {})
    assert cell.passes == 10
    assert cells_of([window(*shadow)], Plan(), {}) == ()
    assert [row.evidence for row in setting_rows([*shadow, TEN_PASSES])] == [
        Evidence.LIVE,
        Evidence.REPLAY,
        Evidence.COUNTERFACTUAL,
    ]


def test_a_cell_without_drafts_has_no_acceptance_rather_than_zero() -> None:
    plain = observed(passes=5, verify=0, drafted=0, accepts=(), setting=OFF)
    (cell,) = cells_of([window(plain)], None, {})
    assert cell.acceptance_rate is None
    assert cell.acceptance_length is None
    assert cell.tokens_per_pass == 1.0
    assert cell.live is None
    assert cell.ttft_p95_s is None


def test_the_most_used_setting_is_named_first() -> None:
    plain = observed(passes=50, verify=0, drafted=0, accepts=(), setting=OFF)
    (cell,) = cells_of([window(TEN_PASSES, plain)], Plan(), {})
    assert cell.settings_seen == (OFF, DRAFT)


def test_a_setting_that_only_ran_for_comparison_is_not_named() -> None:
    plain = observed(passes=1, verify=0, drafted=0, accepts=(), setting=OFF)
    among = replace(plain, reference_passes=1)
    (cell,) = cells_of([window(TEN_PASSES, among)], Plan(), {})
    assert cell.settings_seen == (DRAFT,)
    assert cell.passes == 11


def test_a_requests_first_token_is_not_part_of_its_decoding_speed() -> None:
    done = RequestObservation(
        route="chat",
        setting=OFF,
        load=LOAD,
        requests=2,
        completion_tokens=22,
        decode_s=4.0,
        ttft=LatencyHistogram.of([0.1, 0.1]),
        chunk_gaps=LatencyHistogram(),
        tpot=LatencyHistogram.of([0.2, 400.0]),
    )
    (cell,) = cells_of([window(requests=(done,))], Plan(), {})
    assert cell.request_tokens_per_s == 5.0
    assert cell.tpot_p95_s == float("inf")
    assert cell.tokens_per_pass is None


def test_acceptance_by_position_sums_attempts_and_keeps_kinds_of_evidence_apart() -> None:
    shadow = observed(
        passes=4, verify=4, drafted=12, accepts=(4, 0, 0), attempts=(4, 4, 0),
        evidence=Evidence.REPLAY,
    )  # fmt: skip
    live, replayed = curves_of([TEN_PASSES, TEN_PASSES, shadow])
    assert [(p.attempts, p.accepts) for p in live.points] == [(8, 6), (6, 4), (4, 2)]
    assert live.points[0].rate is not None
    assert live.points[0].rate.low < 0.75 < live.points[0].rate.high
    assert replayed.evidence is Evidence.REPLAY
    assert replayed.points[2].rate is None


def test_observations_of_different_depth_add_up_by_position() -> None:
    short = observed(passes=1, verify=1, drafted=1, accepts=(1,), attempts=(1,))
    total = observations_summed([short, TEN_PASSES])
    assert total.attempts == (5, 3, 2)
    assert total.accepts == (4, 2, 1)


def test_a_window_without_live_traffic_is_a_gap_in_the_history() -> None:
    quiet, busy = window(), window(TEN_PASSES)
    points = history_of([quiet, busy], "chat")
    assert [point.tokens_per_pass for point in points] == [None, 1.6]


def test_costs_of_one_shape_are_averaged_over_steps_with_their_spread() -> None:
    def cost(steps: int, each_s: tuple[float, ...]) -> StepCost:
        return StepCost(
            rows=1,
            positions=4,
            context_tokens=64,
            steps=steps,
            total_s=sum(each_s),
            total_square_s2=sum(s * s for s in each_s),
        )

    windows = [
        Window(start_s=0, end_s=1, step_costs=(cost(2, (0.01, 0.02)),)),
        Window(start_s=1, end_s=2, step_costs=(cost(1, (0.03,)), cost(0, ()))),
    ]
    (row,) = cost_rows(windows)
    assert row.steps == 3
    assert row.mean_s == pytest.approx(0.02)
    assert row.deviation_s == pytest.approx(0.01)
    (single,) = cost_rows(windows[1:])
    assert single.deviation_s is None


def test_mixes_are_weighted_by_their_steps() -> None:
    def mix(steps: int, rows: dict[str, float], tokens: int) -> LoadMix:
        return LoadMix(
            load=LOAD,
            steps=steps,
            rows_by_route=rows,
            context_tokens=100.0 * steps,
            tokens=tokens,
            busy_s=steps * 0.1,
        )

    few, many = mix(1, {"chat": 1.0}, 10), mix(3, {"code": 2.0}, 50)
    (both,) = mixes_summed([few, many])
    assert both.rows_by_route == {"chat": 0.25, "code": 1.5}
    assert both.context_tokens == pytest.approx(250.0)
    (total,) = load_totals([Window(start_s=0, end_s=1, mixes=(few, many))])
    assert total.tokens_per_s == pytest.approx(60 / 0.4)
    assert total.mean_step_s == pytest.approx(0.1)
