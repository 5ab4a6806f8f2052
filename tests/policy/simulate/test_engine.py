"""The simulated engine counts what its expectations say."""

import numpy as np
import pytest

from policy.simulate.engine import ARMS, Choice, Engine, Turn, lookup, model, switch_loss
from policy.simulate.objectives import tpot_limits_s
from policy.simulate.ours import window_of
from policy.simulate.peers.base import for_all, for_each
from policy.simulate.peers.oracles import (
    LimitedOracle,
    OneArmOracle,
    PerfectConfidence,
    PerRouteOracle,
)
from policy.simulate.profiles import Drafting, profile_named
from policy.simulate.worlds import draw_world, workloads_of
from policy.tally import impossible_reason


def engine_of(seed: int = 0, workloads: str = "W2+W3+W5", profile: str = "gpu") -> Engine:
    world = draw_world(seed, workloads_of(workloads), 120)
    return Engine(world=world, profile=profile_named(profile))


MIXED = [lookup(7), model(3), lookup(2), model(1)]


def test_counts_agree_with_expectations_over_many_windows() -> None:
    engine, generator = engine_of(), np.random.default_rng(1)
    turn = engine.turn(80)
    choice = for_each(MIXED, turn)
    seen = [engine.counts(turn, choice, generator) for _ in range(400)]
    per_step = np.mean([counts.tokens / counts.steps for counts in seen], axis=0)
    assert per_step == pytest.approx(engine.tokens(turn, choice), rel=0.02)
    target, drafts = engine.seconds(turn, choice)
    assert np.mean([counts.target_s for counts in seen]) == pytest.approx(target, rel=0.01)
    assert np.mean([counts.goodput for counts in seen]) == pytest.approx(
        engine.goodput(turn, choice), rel=0.02
    )
    assert drafts[Drafting.MODEL] > drafts[Drafting.LOOKUP] == 0


def test_what_a_policy_is_shown_could_have_been_counted() -> None:
    engine, generator = engine_of(3), np.random.default_rng(2)
    for number in range(0, 120, 7):
        turn = engine.turn(number)
        window = window_of(engine.counts(turn, for_each(MIXED, turn), generator), MIXED)
        assert [impossible_reason(seen) for seen in window.observations] == [None] * len(
            window.observations
        )
        assert window.step_costs[0].positions >= window.step_costs[0].rows


def test_only_a_step_without_any_speculation_pays_the_tax_of_off() -> None:
    engine = engine_of()
    turn = engine.turn(0)
    plain = engine.profile.step_table_s(turn.num_rows, turn.context_tokens)[turn.num_rows]
    assert engine.seconds(turn, for_all(ARMS[0], turn))[0] == pytest.approx(1.03 * plain)
    assert engine.seconds(turn, for_all(lookup(2), turn))[0] < 1.03 * plain


def test_no_combination_of_arms_keeps_more_tokens_within_limits() -> None:
    engine, generator = engine_of(5), np.random.default_rng(4)
    limits_s = tpot_limits_s(engine.profile) * (0.3, 1.0, 0.8, 1.0)
    oracle, free = LimitedOracle(engine, limits_s), PerRouteOracle(engine)
    fewer = 0
    for number in (0, 30, 60, 90, 119):
        turn = engine.turn(number)

        def kept(choice: Choice, turn: Turn = turn) -> float:
            found = engine.route_goodputs(turn, choice)
            return float(found[turn.rows <= limits_s * found * (1 + 1e-12)].sum())

        best = kept(oracle.choose(turn))
        for _ in range(50):
            settings = [ARMS[i] for i in generator.integers(len(ARMS), size=4)]
            assert kept(for_each(settings, turn)) <= best * (1 + 1e-12)
        fewer += kept(free.choose(turn)) < best
    assert fewer


def test_no_combination_of_arms_beats_the_oracle() -> None:
    engine, generator = engine_of(4), np.random.default_rng(3)
    oracle, one_arm = PerRouteOracle(engine), OneArmOracle(engine)
    for number in (0, 30, 60, 90, 119):
        turn = engine.turn(number)
        best = engine.goodput(turn, oracle.choose(turn))
        single = engine.goodput(turn, one_arm.choose(turn))
        alike = [engine.goodput(turn, for_all(arm, turn)) for arm in ARMS]
        assert single == pytest.approx(max(alike))
        assert best >= single - 1e-9
        for _ in range(50):
            picked = [ARMS[index] for index in generator.integers(len(ARMS), size=4)]
            assert engine.goodput(turn, for_each(picked, turn)) <= best + 1e-9


def test_perfect_confidence_verifies_the_best_number_of_slots() -> None:
    engine = engine_of(5)
    turn = engine.turn(100)
    chosen = PerfectConfidence(engine, Drafting.ONE_PASS).choose(turn)
    best = engine.goodput(turn, chosen)
    for k in range(8):
        slots = turn.rows[:, None] * (np.arange(7) < k)
        other = Choice(way=chosen.way, depth=chosen.depth, slots=slots)
        assert engine.goodput(turn, other) <= best + 1e-9


def test_only_the_cliff_profile_charges_for_switching() -> None:
    cliff = engine_of(profile="bs-cliff")
    turn = cliff.turn(0)
    before, after = for_all(model(3), turn), for_all(model(5), turn)
    assert switch_loss(cliff.profile, turn, after, before) == pytest.approx(0.2)
    assert switch_loss(cliff.profile, turn, before, before) == 0
    assert switch_loss(engine_of().profile, turn, after, before) == 0


def test_counters_show_what_switching_lost() -> None:
    engine = engine_of()
    turn = engine.turn(100)
    choice = for_all(model(3), turn)
    whole, cut = (
        engine.counts(turn, choice, np.random.default_rng(0), lost_s) for lost_s in (0.0, 0.2)
    )
    assert whole.busy_s == whole.steps * whole.step_s
    assert cut.steps == pytest.approx(0.8 * whole.steps, abs=1)
    assert cut.busy_s == pytest.approx(cut.steps * cut.step_s + 0.2)
    assert cut.goodput == pytest.approx(0.8 * whole.goodput, rel=0.05)
