"""Peers do what their descriptions say."""

from collections.abc import Callable

import numpy as np
import pytest

from policy.simulate.engine import Choice, Counts, Turn, model
from policy.simulate.field import entrants
from policy.simulate.peers.bandits import ByLoad, EpsilonGreedy, Ucb
from policy.simulate.peers.base import Policy, for_all
from policy.simulate.peers.rules import AcceptanceBand, OneWayGate, SglangAdaptive
from policy.simulate.peers.tables import BatchSizeTable, Cascade, GoodputAverage
from policy.simulate.profiles import Drafting
from policy.simulate.run import run
from tests.policy.simulate.test_engine import engine_of

ROWS = np.array([2, 2, 2, 2])


def turn_of(rows: int = 8) -> Turn:
    return Turn(window=0, rows=ROWS * rows // 8, context_tokens=0.0)


def counts_of(turn: Turn, choice: Choice, acceptance: float, steps: int = 50) -> Counts:
    """Counts in which every position is accepted at one rate."""
    attempts = np.zeros((4, 7), dtype=np.intp)
    accepts = np.zeros((4, 7), dtype=np.intp)
    left = turn.rows * steps
    for position in range(7):
        attempts[:, position] = left * (choice.depth > position)
        accepts[:, position] = np.rint(attempts[:, position] * acceptance)
        left = accepts[:, position]
    return Counts(
        turn=turn,
        choice=choice,
        steps=steps,
        target_s=0.03,
        target_square_s2=0.0009,
        draft_s=np.zeros(len(Drafting)),
        attempts=attempts,
        accepts=accepts,
        tokens=turn.rows * steps + accepts.sum(axis=1),
    )


def settled(policy: Policy, acceptance: float, rows: int = 8, windows: int = 30) -> list[int]:
    """The draft length of the first route, window by window."""
    lengths = []
    for _ in range(windows):
        choice = policy.choose(turn_of(rows))
        lengths.append(int(choice.depth[0]))
        policy.observe(counts_of(turn_of(rows), choice, acceptance))
    return lengths


def test_sglang_climbs_its_tier_and_falls_back() -> None:
    assert settled(SglangAdaptive(), 0.99, rows=4)[-1] == 7
    assert settled(SglangAdaptive(), 0.1, rows=4)[-1] == 1
    assert settled(SglangAdaptive(), 0.99, rows=8)[-1] == 3
    assert set(settled(SglangAdaptive(), 0.99, rows=64)) == {0}


def test_sglang_probes_again_after_nothing() -> None:
    lengths = settled(SglangAdaptive(), 0.1, rows=8)
    assert {0, 1} == set(lengths[5:])


def test_the_band_moves_towards_its_target_rate_one_by_one() -> None:
    low = settled(AcceptanceBand(4), 0.3)
    assert low[:4] == [7, 7, 7, 6]
    assert low[-1] == 1
    assert settled(AcceptanceBand(4), 0.95)[-1] == 7


def test_the_gate_never_opens_again() -> None:
    gate = OneWayGate()
    assert settled(gate, 0.1, windows=40)[-1] == 0
    assert settled(gate, 1.0, windows=40) == [0] * 40
    assert set(settled(OneWayGate(), 0.8, windows=60)) == {3}


def test_the_average_prefers_long_drafts_only_where_they_pay() -> None:
    engine = engine_of()
    assert settled(GoodputAverage(engine), 0.95)[-1] >= 5
    assert settled(GoodputAverage(engine), 0.02)[-1] <= 1


def test_cascade_sets_what_paid_and_rests_longer_where_nothing_does() -> None:
    lengths = settled(Cascade(engine_of()), 0.0, windows=120)
    assert lengths[0] == 3
    runs = "".join("x" if k else "." for k in lengths).split("x")
    rests = [len(run) for run in runs if len(run) > 4]
    assert rests[0] == 32
    assert rests[1] == 64
    assert max(settled(Cascade(engine_of()), 0.95)[8:]) >= 5


def test_the_table_is_the_best_arm_of_a_sweep_and_free_of_the_future() -> None:
    engine = engine_of(2, "W2")
    table = BatchSizeTable(engine)
    deep = int(table.choose(turn_of(8)).depth[0])
    crowded = int(table.choose(turn_of(800)).depth[0])
    assert deep > crowded


@pytest.mark.parametrize(
    "new", [Ucb, lambda: Ucb(0.99), lambda: EpsilonGreedy(np.random.default_rng(0))]
)
def test_bandits_end_with_the_arm_that_pays(new: Callable[[], Ucb]) -> None:
    learner = new()
    pulls = []
    for _ in range(400):
        arm = learner.pull()
        pulls.append(arm)
        learner.learn(arm, 1.0 if arm == 5 else 0.3)
    assert set(pulls[:9]) == set(range(9))
    assert np.mean(np.array(pulls[200:]) == 5) > 0.7


def test_a_bandit_by_load_keeps_its_levels_apart() -> None:
    policy = ByLoad("x", Ucb)
    first = [int(policy.choose(turn_of(8)).depth[0]) for _ in range(1)]
    policy.observe(counts_of(turn_of(8), for_all(model(0), turn_of(8)), 0.0))
    assert int(policy.choose(turn_of(80)).depth[0]) == first[0]


def test_every_entrant_gets_through_a_world_and_none_beats_the_oracle() -> None:
    engine = engine_of(6, "W3+W4+W5+W6", "moe")
    ticks = iter(range(10**9))
    traces = [run(engine, p, 6, lambda: float(next(ticks))) for p in entrants(engine, 6)]
    best = traces[0].goodput
    assert len({trace.name for trace in traces}) == len(traces) == 23
    for trace in traces[1:]:
        if not trace.name.startswith("av_"):
            assert np.all(trace.goodput <= best * (1 + 1e-9)), trace.name
        assert np.all(trace.goodput > 0)
