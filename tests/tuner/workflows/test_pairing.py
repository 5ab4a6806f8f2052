from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.fixtures.facts import DRAFT_3
from tuner.store.replays import ArmRun, ReplayPair
from tuner.workflows.pairing import speeds_of_pairs, speedup_of, summary_of


def pair(base_s: float, other_s: float, void_reason: str | None = None) -> ReplayPair:
    return ReplayPair(
        place=0,
        request_id="a",
        route="chat",
        base=ArmRun(tokens=10, seconds=base_s, passes=9, accepted=0),
        other=ArmRun(tokens=10, seconds=other_s, passes=3, accepted=6, setting=DRAFT_3),
        void_reason=void_reason,
    )


def test_the_speedup_is_the_geometric_mean_of_the_ratios():
    summary = summary_of([pair(2.0, 1.0), pair(2.0, 4.0)] * 4)

    assert summary.speedup is not None
    assert summary.speedup.mean == pytest.approx(1.0)
    assert (summary.pairs, summary.void_pairs) == (8, 0)
    assert (summary.base_tokens_per_pass, summary.other_tokens_per_pass) == (1.0, 3.0)


def test_void_pairs_are_counted_and_otherwise_left_out():
    summary = summary_of([*[pair(2.0, 1.0)] * 8, pair(1.0, 9.0, "other: refused")])

    assert summary.speedup is not None
    assert summary.speedup.mean == pytest.approx(2.0)
    assert (summary.pairs, summary.void_pairs) == (8, 1)


@pytest.mark.parametrize("ratios", [[], [2.0], [2.0] * 7])
def test_too_few_pairs_give_no_interval(ratios: list[float]):
    assert speedup_of(ratios) is None


def test_nine_in_ten_intervals_hold_the_truth():
    rng = np.random.default_rng(0)
    truth, trials, held = 1.4, 2_000, 0
    for _ in range(trials):
        found = speedup_of(list(truth * np.exp(0.3 * rng.standard_normal(12))))
        assert found is not None
        held += found.low <= truth <= found.high

    assert held / trials == pytest.approx(0.90, abs=0.02)


def test_the_time_to_the_first_token_does_not_count_where_both_arms_showed_it():
    base = ArmRun(tokens=11, seconds=3.0, ttft_s=2.0)
    other = ArmRun(tokens=21, seconds=1.5, ttft_s=0.5)
    both = ReplayPair(place=0, request_id="a", route="chat", base=base, other=other)
    unseen = replace(both, other=replace(other, ttft_s=None))

    assert both.token_times_s == (pytest.approx(0.1), pytest.approx(0.05))
    assert both.ratio == pytest.approx(2.0)
    assert unseen.token_times_s == (pytest.approx(3 / 11), pytest.approx(1.5 / 21))


def test_pairs_of_one_batch_and_turns_of_one_conversation_are_one_cluster():
    talks = [replace(pair(2.0, 1.0), request_id=str(n), conversation=str(n % 2)) for n in range(6)]
    batches = [replace(pair(2.0, 1.0), request_id=str(n), rows=4) for n in range(8)]

    alone, batched = speeds_of_pairs([*talks, *batches], precision=0.1)

    assert (alone.load.label, alone.pairs, alone.clusters) == ("1", 6, 2)
    assert (batched.load.label, batched.pairs, batched.clusters) == ("3-4", 8, 2)
