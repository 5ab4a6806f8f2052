"""The engine's adaptive mode verifies what gives most tokens per second, and is counted as such."""

from __future__ import annotations

import numpy as np
import pytest

from collectors.records import Setting
from policy.simulate.allotment import Queue
from policy.simulate.engine import ADAPTIVE_ARMS, ARMS, Choice, Engine, Turn, lookup, model
from policy.simulate.ours import window_of
from policy.simulate.peers.base import for_all, for_each
from policy.simulate.peers.oracles import OneArmOracle, PerfectConfidence, PerRouteOracle
from policy.simulate.profiles import Drafting
from policy.tally import impossible_reason
from tests.policy.simulate.test_engine import engine_of

ONE_PASS, AUTOREGRESSIVE = ADAPTIVE_ARMS
MIXED = [ONE_PASS, lookup(7), AUTOREGRESSIVE, model(2)]
EVERY = (*ARMS, *ADAPTIVE_ARMS)


def served(engine: Engine, turn: Turn, settings: list[Setting]) -> Choice:
    return engine.allotted(turn, for_each(settings, turn))


@pytest.mark.parametrize("profile", ["gpu", "cpu", "moe"])
def test_no_other_number_of_slots_gives_more_tokens_per_second(profile: str) -> None:
    engine = engine_of(3, profile=profile)
    for window in (0, 60, 100):
        turn = engine.turn(window)
        table = engine.profile.step_table_s(turn.num_rows, turn.context_tokens)
        survival = engine.world.survival(window)[:, 1]
        queue = Queue.of(survival, np.tile(turn.rows[:, None], 7))
        for beside in (0, 5, 90):
            budget = queue.budgets(
                table,
                np.array([turn.num_rows + 0.7 * beside]),
                np.array([turn.num_rows + beside]),
                np.array([0.001]),
            )
            tokens = turn.num_rows + 0.7 * beside + queue.gained
            seconds = table[turn.num_rows + beside :][: len(tokens)] + 0.001
            rates = tokens / seconds
            assert rates[budget[0]] == pytest.approx(rates.max(), rel=1e-12)


def test_the_likeliest_slots_are_taken_and_no_more_than_there_are() -> None:
    queue = Queue.of(np.array([[0.9, 0.5], [0.8, 0.1]]), np.array([[2, 2], [3, 3]]))
    assert queue.taken(np.array([0, 4, 6, 10])).tolist() == [
        [0, 0, 0, 0],
        [2, 0, 2, 0],
        [2, 1, 3, 0],
        [2, 2, 3, 3],
    ]


def test_routes_of_fixed_length_keep_it_beside_adaptive_ones() -> None:
    engine = engine_of(5)
    turn = engine.turn(100)
    choice = served(engine, turn, MIXED)
    assert choice.slots[1].tolist() == [turn.rows[1]] * 7
    assert choice.slots[3].tolist() == [turn.rows[3]] * 2 + [0] * 5
    assert np.all(np.diff(choice.slots, axis=1) <= 0)
    assert np.array_equal(engine.allotted(turn, choice).slots, choice.slots)


def test_more_rows_leave_each_of_them_fewer_positions() -> None:
    engine = engine_of(5)
    turn = engine.turn(100)
    lengths = []
    for factor in (1, 4):
        larger = Turn(window=100, rows=factor * turn.rows, context_tokens=0.0)
        choice = served(engine, larger, [ONE_PASS] * 4)
        lengths.append(choice.slots.sum() / larger.num_rows)
    assert lengths[1] < lengths[0]


def test_one_adaptive_arm_for_all_is_the_peer_with_perfect_confidence() -> None:
    engine = engine_of(6)
    for window in (0, 50, 100):
        turn = engine.turn(window)
        peer = PerfectConfidence(engine, Drafting.ONE_PASS).choose(turn)
        assert np.array_equal(served(engine, turn, [ONE_PASS] * 4).slots, peer.slots)


def test_counts_of_adaptive_routes_agree_with_expectations_and_show_what_was_verified() -> None:
    engine, generator = engine_of(), np.random.default_rng(1)
    turn = engine.turn(90)
    choice = served(engine, turn, MIXED)
    seen = [engine.counts(turn, choice, generator) for _ in range(300)]
    per_step = np.mean([counts.tokens / counts.steps for counts in seen], axis=0)
    assert per_step == pytest.approx(engine.tokens(turn, choice), rel=0.02)
    window = window_of(seen[0], MIXED)
    assert [impossible_reason(each) for each in window.observations] == [None] * 4
    drafted = [each.drafted / seen[0].steps for each in window.observations]
    assert drafted == choice.slots.sum(axis=1).tolist()
    assert {cost.depth for cost in window.draft_costs} == {7}


def test_no_combination_with_adaptive_arms_beats_the_oracle_that_has_them() -> None:
    engine, generator = engine_of(4), np.random.default_rng(3)
    oracle, one_arm = PerRouteOracle(engine, EVERY), OneArmOracle(engine, EVERY)
    without = PerRouteOracle(engine)
    for number in (0, 60, 100):
        turn = engine.turn(number)
        best = engine.goodput(turn, engine.allotted(turn, oracle.choose(turn)))
        alike = [engine.goodput(turn, engine.allotted(turn, for_all(arm, turn))) for arm in EVERY]
        single = engine.goodput(turn, engine.allotted(turn, one_arm.choose(turn)))
        assert single == pytest.approx(max(alike))
        assert best >= max(single, engine.goodput(turn, without.choose(turn))) * (1 - 1e-12)
        for _ in range(100):
            picked = [EVERY[index] for index in generator.integers(len(EVERY), size=4)]
            assert engine.goodput(turn, served(engine, turn, picked)) <= best * (1 + 1e-12)


def test_ending_drafts_by_itself_is_another_way_to_draft() -> None:
    turn = engine_of().turn(0)
    fixed, adaptive = for_all(model(7), turn), for_all(AUTOREGRESSIVE, turn)
    assert adaptive.moved(fixed).tolist() == [1, 1, 1, 1]
    assert adaptive.moved(adaptive).tolist() == [0, 0, 0, 0]
