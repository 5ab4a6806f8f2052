from __future__ import annotations

import json

import pytest
import torch

from tests.tuner.engine.verification.mutants import mutant_of
from tuner.bench import prove as prove_module
from tuner.bench.prove import (
    FALSE_ALARM_RATE,
    ProofReport,
    arms,
    count_sequences,
    prove,
    tree_arms,
)
from tuner.bench.toy import ToyLanguage
from tuner.engine.verification import verify, verify_tree
from tuner.engine.verification.selfcheck import chi_square_p_value
from tuner.errors import BadRequest

FORMULA = {1: 1.785, 2: 2.393, 3: 2.878, 4: 3.242, 6: 3.760, 8: 4.054}
ARMS = {"target", "speculative", "biased", "tree", "tree_match"}


@pytest.fixture(scope="module")
def report() -> ProofReport:
    return prove(samples=400_000, seed=0)


def test_speculation_is_as_far_from_the_exact_distribution_as_the_target_is(
    report: ProofReport,
) -> None:
    assert report.tv["target"] < 0.01
    assert report.tv["speculative"] < 0.01
    assert report.tv["tree"] < 0.01
    assert report.tv["tree_match"] < 0.01
    assert report.tv_noise == pytest.approx(report.tv["target"], rel=0.15)


def test_the_classic_bug_stays_away_from_it_and_is_the_only_arm_flagged(
    report: ProofReport,
) -> None:
    assert report.tv["biased"] == pytest.approx(0.107, abs=0.003)
    assert report.chi2_p["biased"] == 0
    assert report.flagged == ("biased",)
    assert report.false_alarm_rate == FALSE_ALARM_RATE


def test_measured_acceptance_by_context_equals_the_exact_one(report: ProofReport) -> None:
    assert report.accepted_by_context == pytest.approx(report.alpha_by_context, abs=0.004)
    assert report.matched_by_context == pytest.approx(report.match_by_context, abs=0.004)
    assert report.alpha_by_context == pytest.approx((0.672, 0.692, 0.856, 0.863), abs=5e-4)


def test_tokens_per_pass_follow_the_formula(report: ProofReport) -> None:
    assert [row.k for row in report.formula] == list(FORMULA)
    for row in report.formula:
        assert row.measured == pytest.approx(row.expected, rel=0.01)
        assert row.measured == pytest.approx(FORMULA[row.k], rel=0.012)
        assert row.alpha == pytest.approx(0.78, abs=0.01)


def test_report_has_the_documented_keys_and_survives_json(report: ProofReport) -> None:
    figures = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert set(figures) == {"tv", "chi2_p", "alpha_by_context", "flagged", "formula"}
    assert set(figures["tv"]) == set(figures["chi2_p"]) == ARMS
    assert len(figures["alpha_by_context"]) == 4
    assert all(set(row) == {"k", "measured", "expected"} for row in figures["formula"])


def test_the_same_seed_gives_the_same_report_and_another_seed_another_one() -> None:
    assert prove(samples=2000, seed=5) == prove(samples=2000, seed=5)
    assert prove(samples=2000, seed=5).tv != prove(samples=2000, seed=6).tv


def test_a_correct_arm_is_flagged_about_as_often_as_stated() -> None:
    language = ToyLanguage.build()
    exact = language.sequence_probs(4)
    step = arms(language, torch.Generator().manual_seed(1))["speculative"]
    p_values = [
        chi_square_p_value(count_sequences(step, 20_000), 20_000 * exact) for _ in range(100)
    ]
    assert sum(p_value < 0.1 for p_value in p_values) == pytest.approx(10, abs=12)
    assert min(p_values) > 1e-5


def test_distance_is_judged_against_the_noise_of_the_sample() -> None:
    few = prove(samples=1000, seed=0)
    assert few.tv["target"] == pytest.approx(0.16, abs=0.02)
    assert few.tv_noise == pytest.approx(0.16, abs=0.02)
    assert "target" not in few.flagged


def test_a_few_samples_are_too_few_to_flag_anything() -> None:
    assert prove(samples=1, seed=0).flagged == ()


@pytest.mark.parametrize("samples", [0, -3])
def test_no_samples_are_refused_with_the_value_named(samples: int) -> None:
    with pytest.raises(BadRequest, match=f"samples is {samples}; give at least 1"):
        prove(samples=samples)


def test_the_proof_runs_the_engines_own_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = ("return verdicts.to(torch.int64).cumprod(1).sum(1)", "return verdicts.long().sum(1)")
    monkeypatch.setattr(prove_module, "verify_chain", mutant_of(verify, *bug).verify_chain)
    assert "speculative" in prove(samples=50_000, seed=0).flagged


def test_the_proof_of_trees_runs_the_engines_own_verification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bug = ("residual = positive_part(target, guess.where(is_guess, draft))", "residual = target")
    monkeypatch.setattr(prove_module, "verify_tree", mutant_of(verify_tree, *bug).verify_tree)
    flagged = prove(samples=50_000, seed=0).flagged
    assert "tree" in flagged
    assert "tree_match" not in flagged


def test_drawn_trees_keep_more_than_matched_ones_and_those_more_than_none() -> None:
    language = ToyLanguage.build()
    contexts = torch.arange(4).repeat(5000)
    kept = {
        name: float((step(contexts)[1] - 1).double().mean())
        for name, step in tree_arms(language, torch.Generator().manual_seed(2)).items()
    }
    assert kept["tree"] > kept["tree_match"] + 0.05 > 0.5
