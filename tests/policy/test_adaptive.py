"""An adaptive Setting is known by what it yields at each load level, and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from collectors.records import OFF, LoadLevel, Method, Setting, load_level_of
from policy.acceptance import AcceptanceModel
from policy.adaptive import NEAR_PASSES, AdaptiveRounds, AtLoad, kind_of, tally_at
from policy.cost import CostModel
from policy.knowledge import Knowledge, Mix
from policy.learning import Learner
from policy.outlook import Outlook
from policy.scenes import shared_batch
from policy.tally import impossible_reason, tally_of
from policy.types import DraftObservation, Observation
from tests.policy.worlds import END_S, draft, draft_costs, step_costs, survival_of, window

ARM = Setting(method=Method.DRAFT_MODEL, k=7, is_adaptive=True)
QUIET, BUSY, CROWDED = load_level_of(4), load_level_of(32), load_level_of(64)


def adaptive(
    load: LoadLevel, drafted: int, hazard: float, *, passes: int = 4000, route: str = "chat"
) -> Observation:
    """Passes in which every draft had the same length."""
    accepts = tuple(round(passes * share) for share in survival_of([hazard] * drafted))
    return Observation(
        route=route,
        setting=ARM,
        load=load,
        start_s=END_S - 60,
        end_s=END_S,
        passes=passes,
        verify_passes=passes if drafted else 0,
        drafted=passes * drafted,
        accepted=sum(accepts),
        tokens=passes + sum(accepts),
        attempts=(passes, *accepts)[:drafted],
        accepts=accepts,
    )


def fixed(hazard: float, *, k: int = 3) -> Observation:
    seen = adaptive(QUIET, k, hazard)
    return Observation(
        **{name: getattr(seen, name) for name in Observation.__slots__ if name != "setting"},
        setting=draft(k),
    )


def learned(windows: Sequence[Sequence[Observation]]) -> Learner:
    learner = Learner(AcceptanceModel.empty(360_000.0), CostModel.empty())
    for age, observations in zip(range(len(windows) - 1, -1, -1), windows, strict=True):
        learner.observe(window(observations, end_s=END_S - 60 * age))
    return learner


def outlook_of(learner: Learner) -> Outlook:
    return Outlook(
        learner.acceptance,
        learner.regimes,
        np.random.default_rng(0),
        num_draws=2000,
        num_windows=30,
    )


def tokens(drafted: int, hazard: float) -> float:
    return 1 + sum(survival_of([hazard] * drafted))


def at(load: LoadLevel) -> AtLoad:
    kind = kind_of(ARM, load)
    assert isinstance(kind, AtLoad)
    return kind


def test_each_load_level_has_its_own_yield_and_draft_length() -> None:
    loads = ((QUIET, 6, 0.8), (BUSY, 2, 0.9))
    outlook = outlook_of(learned([[adaptive(*each) for each in loads]] * 10))
    for load, drafted, hazard in loads:
        expected = tokens(drafted, hazard)
        assert outlook.mean_tokens("chat", at(load))[7] == pytest.approx(expected, rel=0.02)
        drawn = outlook.drawn_tokens("chat", at(load))[:, 7]
        assert drawn.mean() == pytest.approx(expected, rel=0.02)
        assert 7 * outlook.mean_fill("chat", at(load)) == pytest.approx(drafted, rel=0.05)


def test_a_higher_load_level_is_thought_to_draft_no_more_in_all_and_a_lower_one_as_much_a_row() -> (
    None
):
    held = {BUSY: tally_of(adaptive(BUSY, 4, 0.8))}
    near = {load: tally_at(held, load) for load in (QUIET, BUSY, CROWDED)}
    per_pass = {load: tally.drafted / tally.passes for load, tally in near.items()}
    assert per_pass[BUSY] == per_pass[QUIET] == pytest.approx(4)
    assert per_pass[CROWDED] == pytest.approx(2, rel=0.02)
    assert near[CROWDED].passes == pytest.approx(NEAR_PASSES)
    assert near[QUIET].passes == pytest.approx(NEAR_PASSES / 4)


def test_what_is_borrowed_gives_way_to_what_is_counted() -> None:
    few = {QUIET: tally_of(adaptive(QUIET, 6, 0.8)), BUSY: tally_of(adaptive(BUSY, 1, 0.8))}
    assert tally_at(few, BUSY).drafted == few[BUSY].drafted


def test_a_load_level_without_counts_is_much_less_sure_than_one_with() -> None:
    outlook = outlook_of(learned([[adaptive(BUSY, 4, 0.8)]] * 20))
    spread = {load: outlook.drawn_tokens("chat", at(load))[:, 7].std() for load in (BUSY, CROWDED)}
    assert spread[CROWDED] > 4 * spread[BUSY]


def test_the_positions_that_an_engine_keeps_say_nothing_of_fixed_lengths() -> None:
    alone = learned([[fixed(0.5)]]).acceptance
    beside = learned([[fixed(0.5), adaptive(QUIET, 7, 0.99)]]).acceptance
    for method in (draft(1), Method.DRAFT_MODEL):
        means = [model.posterior("chat", method).tokens_per_pass() for model in (alone, beside)]
        assert means[0] == pytest.approx(means[1])
    assert beside.depth("chat", draft(1)) == 3
    assert beside.depth("code", at(QUIET)) == 0


def test_one_never_tried_is_thought_to_yield_what_its_ceiling_would() -> None:
    """Its drafts begin as those of a fixed length do; how soon the engine ends them is unknown."""
    learner = learned([[fixed(0.5, k=7)]] * 20)
    guess = learner.acceptance.posterior("chat", at(BUSY))
    means = guess.alpha / (guess.alpha + guess.beta)
    found = learner.regimes.mean_tokens("chat", at(BUSY), means, guess.reach)[7]
    assert found == pytest.approx(tokens(7, 0.5), rel=0.05)
    assert learner.regimes.mean_fill("chat", at(BUSY), guess.fill) == pytest.approx(1.0)


def test_evidence_counts_at_its_own_load_level_only() -> None:
    acceptance = learned([[adaptive(QUIET, 2, 0.8)]]).acceptance
    knowledge = Knowledge(
        acceptance=acceptance,
        cost=CostModel.empty(),
        arms=(OFF, ARM),
        min_passes=30.0,
        posteriors={},
    )
    assert knowledge.has_evidence("chat", ARM, QUIET)
    assert not knowledge.has_evidence("chat", ARM, BUSY)
    assert knowledge.has_evidence("chat", ARM)


def test_drafts_cut_to_nothing_are_counted_too() -> None:
    nothing = adaptive(CROWDED, 0, 0.0)
    assert impossible_reason(nothing) is None
    learner = learned([[adaptive(QUIET, 7, 0.8)]] * 3 + [[nothing]] * 10)
    outlook = outlook_of(learner)
    assert outlook.mean_tokens("chat", at(CROWDED))[7] < 1.05
    assert 7 * outlook.mean_fill("chat", at(CROWDED)) < 0.3
    assert outlook.mean_tokens("chat", at(QUIET))[7] == pytest.approx(tokens(7, 0.8), rel=0.03)


def test_each_behaviour_of_a_route_has_its_own_draft_length() -> None:
    """An engine cuts more where it is less sure; what is accepted tells which of both it is."""
    easy, hard = adaptive(BUSY, 6, 0.9), adaptive(BUSY, 1, 0.5)
    learner = learned([[easy]] * 15 + [[hard]] * 15 + [[easy]])
    guess = learner.acceptance.posterior("chat", at(BUSY))
    assert 7 * learner.regimes.mean_fill("chat", at(BUSY), guess.fill) > 5
    means = guess.alpha / (guess.alpha + guess.beta)
    found = learner.regimes.mean_tokens("chat", at(BUSY), means, guess.reach)[7]
    assert found == pytest.approx(tokens(6, 0.9), rel=0.1)


def rounds(method: Method, rows: int, depth: int) -> DraftObservation:
    return DraftObservation(method=method, rows=rows, depth=depth, rounds=100, total_s=1.0)


def test_draft_rounds_are_as_deep_as_they_were_at_the_nearest_load() -> None:
    seen = [adaptive(QUIET, 5, 0.8), adaptive(BUSY, 2, 0.8)]
    costs = [rounds(ARM.method, 4, 6), rounds(ARM.method, 32, 2), rounds(ARM.method, 31, 3)]
    found = AdaptiveRounds().updated(window(seen, drafts=costs), 1.0, 1.0)
    assert [found.depth(ARM.method, load) for load in (QUIET, BUSY, CROWDED)] == [6, 3, 3]
    assert found.depth(Method.EAGLE, QUIET) is None


def test_rounds_that_drafted_fixed_lengths_too_do_not_count() -> None:
    both = window([adaptive(QUIET, 5, 0.8), fixed(0.8)], drafts=[rounds(ARM.method, 4, 3)])
    assert AdaptiveRounds().updated(both, 1.0, 1.0).depth(ARM.method, QUIET) is None


def drafting_s(rows: int, depth: int) -> float:
    return 0.001 * depth


def test_a_scene_takes_length_and_draft_time_from_its_own_load() -> None:
    seen = [adaptive(QUIET, 6, 0.8), adaptive(BUSY, 2, 0.9)]
    costs = [
        cost
        for rows in (4, 32)
        for cost in step_costs(lambda rows, positions: 0.01, rows, range(8))
    ]
    drafts = [
        *draft_costs(drafting_s, (4,), (6,)),
        *draft_costs(drafting_s, (32,), (3,)),
    ]
    shown = window(seen, costs, drafts)
    knowledge = Knowledge(
        acceptance=AcceptanceModel.empty().updated(shown),
        cost=CostModel.empty().updated(shown),
        arms=(OFF, ARM),
        min_passes=30.0,
        posteriors={},
    )
    mixes = [
        Mix(load=load, steps=100.0, rows_by_route={"chat": rows}, context_tokens=512.0)
        for load, rows in ((QUIET, 4.0), (BUSY, 32.0), (CROWDED, 64.0))
    ]
    batch = shared_batch(knowledge, mixes, {})
    assert batch is not None
    assert batch.positions[:2, 0, 1] / (4, 32) == pytest.approx((7, 3), rel=0.02)
    assert batch.tokens[:2, 0, 1] / (4, 32) == pytest.approx(
        (tokens(6, 0.8), tokens(2, 0.9)), rel=0.02
    )
    assert batch.draft_s[:2, 1, -1, 7] == pytest.approx((0.006, 0.003))
    assert batch.allowed[:, 0, 1].tolist() == [True, True, False]
