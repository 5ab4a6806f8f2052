"""Scores are what their names say, and being ahead is never luck."""

import numpy as np
import pytest

from policy.simulate.match import (
    Line,
    Match,
    Own,
    Prediction,
    Score,
    drawdown_of,
    recovery_of,
    score_of,
)
from policy.simulate.run import Trace
from policy.simulate.scores import table_of
from policy.simulate.worlds import draw_world

PARTS = np.ones(24)


def own(prediction: Prediction) -> Own:
    return Own(
        prediction=prediction,
        exploring_share=0.01,
        decision_s=np.array([0.001, 0.003]),
        learning_s=np.array([0.001]),
    )


def match(seed: int, ours: float, peer: float) -> Match:
    def score(share: float) -> Score:
        return Score(
            oracle_share=share,
            harm_share=0.01 * seed,
            recovery_windows=float(seed),
            switches_per_window=0.5,
            parts=PARTS,
            regret=np.linspace(0, 1 - share, 24),
            limited_share=None if seed == 3 else share,
            kept_share=share,
            tpot_p99_s=np.full(4, 0.01 * seed),
            drawdown_windows=float(seed),
        )

    return Match(
        seed=seed,
        scores={
            "oracle": score(1.0),
            "spectuner_autopilot": score(ours),
            "spectuner_reviewed": score(ours - 0.02),
            "peer": score(peer),
        },
        own={
            "spectuner_autopilot": own(Prediction(errors=(0.01, 0.03), covered=1, judged=2)),
            "spectuner_reviewed": own(Prediction(over_off_covered=3, over_off_judged=4)),
        },
        load=np.array([8, 9]),
    )


def test_a_steady_lead_in_every_world_is_ahead() -> None:
    table = table_of([match(seed, 0.95 + 0.01 * (seed % 3), 0.92) for seed in range(8)])
    (pair,) = table.autopilot.pairs
    assert pair.is_ahead
    assert pair.low <= pair.difference <= pair.high


def test_a_lead_that_hangs_on_one_world_is_not_ahead() -> None:
    table = table_of([match(seed, 0.99 if seed == 0 else 0.90, 0.90) for seed in range(8)])
    (pair,) = table.autopilot.pairs
    assert pair.difference > 0
    assert not pair.is_ahead


def test_pairing_sees_a_small_lead_through_large_differences_of_worlds() -> None:
    shares = np.linspace(0.5, 0.9, 8)
    table = table_of([match(seed, share + 0.01, share) for seed, share in enumerate(shares)])
    assert table.autopilot.pairs[0].low == pytest.approx(0.01)
    ours = next(row for row in table.rows if row.policy == "spectuner_autopilot")
    assert ours.oracle_share_high - ours.oracle_share_low > 0.1


def test_means_and_coverage_are_over_all_worlds() -> None:
    table = table_of([match(seed, 0.95, 0.9) for seed in (1, 3)])
    row = table.rows[0]
    assert (row.harm_share, row.recovery_windows) == (pytest.approx(0.02), 2.0)
    found = table.autopilot
    assert (found.prediction_error, found.coverage, found.predictions) == (
        pytest.approx(0.02),
        0.5,
        4,
    )
    assert found.over_off_coverage is None


def test_each_of_ours_is_judged_against_the_others_and_not_against_each_other() -> None:
    table = table_of([match(seed, 0.95, 0.94) for seed in range(8)])
    autopilot, reviewed = table.standings
    assert [pair.peer for pair in autopilot.pairs] == ["peer"]
    assert [pair.peer for pair in reviewed.pairs] == ["peer"]
    assert (autopilot.num_ahead, reviewed.num_ahead) == (1, 0)
    assert (reviewed.over_off_coverage, reviewed.over_off_predictions) == (0.75, 32)
    assert reviewed.coverage is None


def test_means_leave_out_worlds_in_which_nothing_keeps_a_limit() -> None:
    row = table_of([match(seed, 0.9, 0.9) for seed in (1, 3)]).autopilot.row
    assert row.limited_share == pytest.approx(0.9)
    assert row.tpot_p99_s == pytest.approx(np.full(4, 0.02))
    assert table_of([match(3, 0.9, 0.9)]).autopilot.row.limited_share is None


def test_tokens_count_within_limits_only_where_their_route_keeps_its_own() -> None:
    world = draw_world(0, ("W1",), 48)
    by_route = world.rows / 0.02
    by_route[24:, 0] /= 2
    trace = Trace(
        name="some",
        by_route=by_route,
        moved=np.zeros((48, 4), dtype=np.intp),
        decision_s=np.zeros(48),
        learning_s=np.zeros(48),
    )
    assert trace.tpot_s(world.rows)[24:, 0] == pytest.approx(0.04)
    full = world.rows.sum(axis=1) / 0.02
    line = Line(best=full, off=full, limits_s=np.full(4, 0.03), limited=full)
    score = score_of(trace, line, world)
    lost = by_route[24:, 0].sum()
    assert score.oracle_share == pytest.approx(1 - lost / full.sum())
    assert score.limited_share == pytest.approx(1 - 2 * lost / full.sum())
    assert score.kept_share == pytest.approx(score.limited_share / score.oracle_share)
    assert score.tpot_p99_s == pytest.approx([0.04, 0.02, 0.02, 0.02])
    assert score.regret[-1] == pytest.approx(1 - score.oracle_share)
    assert score.regret[11] == 0
    assert score.drawdown_windows == pytest.approx(lost / full.mean())
    assert score.harm_share == 0.5


def test_a_drawdown_is_the_deepest_fall_and_not_the_last() -> None:
    assert drawdown_of(np.array([5.0, -3.0, 1.0, -4.0, 10.0, -2.0])) == 6.0
    assert drawdown_of(np.array([-2.0, 1.0])) == 2.0
    assert drawdown_of(np.array([1.0, 2.0])) == 0.0


def test_recovery_is_the_first_stretch_of_ten_windows_at_the_mark() -> None:
    shares = np.ones(100)
    shares[40:55] = 0.5
    assert recovery_of(shares, (40,)) == pytest.approx(15, abs=1)
    shares[40:] = 0.5
    assert recovery_of(shares, (40,)) == 60
    assert recovery_of(shares, ()) is None
