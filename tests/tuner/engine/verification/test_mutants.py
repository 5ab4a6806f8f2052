"""Each classic bug, put into the real code at run time, is caught by the check that guards it."""

from __future__ import annotations

import pytest

from tests.tuner.engine.verification.exactness import (
    FALSE_ALARM_RATE,
    assert_impossible_token_rejected,
    assert_penalties_grow_within_a_block,
    assert_prefixes_counted,
    chain_p_value,
    full_trial,
    match_p_value,
    reduced_trial,
)
from tests.tuner.engine.verification.mutants import mutant_of
from tests.tuner.engine.verification.tree_exactness import (
    assert_longest_kept_path_found,
    full_trees,
    narrow_trees,
    reduced_trees,
)
from tuner.engine.verification import (
    draft_distributions,
    penalties,
    trees,
    verify,
    verify_tree,
)

CHAIN_BUGS = {
    "a rejected token is replaced from the plain target": (
        "return (target - draft).clamp_min_(0)",
        "return target",
    ),
    "the bonus comes from the position before": (
        "weights = target.rows(target.starts + accepted_len)",
        "weights = target.rows(target.starts + (accepted_len - 1).clamp_min(0))",
    ),
    "accepted tokens behind a rejected one count": (
        "return verdicts.to(torch.int64).cumprod(1).sum(1)",
        "return verdicts.to(torch.int64).sum(1)",
    ),
    "the residual is taken at the first position of the block": (
        "draft_rows = draft.rows(rejected, accepted_len[rejected])",
        "draft_rows = draft.rows(rejected, torch.zeros_like(rejected))",
    ),
    "the last token reuses the first coin": (
        "last_uniform = uniforms.gather(1, num_drafted.unsqueeze(1)).squeeze(1)",
        "last_uniform = uniforms[:, 0]",
    ),
    "every draft token is kept": (
        "accepted_len = prefix_lengths(kept & is_drafted)",
        "accepted_len = prefix_lengths(is_drafted)",
    ),
    "padding counts as a draft": (
        "accepted_len = prefix_lengths(kept & is_drafted)",
        "accepted_len = prefix_lengths(kept)",
    ),
    "a draft that was kept whole counts as rejected": (
        "is_rejected = accepted_len < num_drafted",
        "is_rejected = accepted_len < num_drafted + (num_drafted == 1)",
    ),
}

MATCH_BUGS = {
    "the draws of all positions share a uniform": (
        "uniforms[active, position])",
        "uniforms[active, 0])",
    ),
    "the target is read one position late": (
        "target.rows(target.starts[active] + position)",
        "target.rows(target.starts[active] + min(position + 1, draft_tokens.shape[1]))",
    ),
}

TREE_BUGS = {
    "the residual is the plain target": (
        "residual = positive_part(target, guess.where(is_guess, draft))",
        "residual = target",
    ),
    "the residual is taken from the whole draft again": (
        "return _normalised(target.where(is_empty, residual)), "
        "_normalised(draft.scatter_(1, tokens, 0))",
        "return _normalised(target.where(is_empty, residual)), draft",
    ),
    "the residual is not normalised": (
        "return _normalised(target.where(is_empty, residual)), ",
        "return target.where(is_empty, residual), ",
    ),
    "what is left of the draft is not normalised": (
        "_normalised(draft.scatter_(1, tokens, 0))",
        "draft.scatter_(1, tokens, 0)",
    ),
    "a mere guess is kept as if it had been drawn": (
        "certain = claims.double().where(claims > 0, 1.0)",
        "certain = claims.double()",
    ),
    "the last token is drawn from the target as it was": (
        "kept[contested], weights[contested] = self._try_others(",
        "kept[contested], _ = self._try_others(",
    ),
    "siblings share a coin": (
        "self.uniforms[rows, children] * certain",
        "self.uniforms[rows, 0] * certain",
    ),
    "the last draw reuses the first coin": (
        "uniforms = self.uniforms[rows[ends], self.trees.num_drafted[rows[ends]]]",
        "uniforms = self.uniforms[rows[ends], 0]",
    ),
    "the target is read at the token before in the draft": (
        "weights = self.target.at(rows, positions)",
        "weights = self.target.at(rows, (positions - 1).clamp_min(0))",
    ),
}


@pytest.mark.parametrize("bug", TREE_BUGS)
def test_a_bug_in_the_rejection_of_trees_is_caught_by_their_outcomes(bug: str) -> None:
    mutant = mutant_of(verify_tree, *TREE_BUGS[bug])
    trials = [full_trees(1), reduced_trees(1), narrow_trees(1)]
    p_values = [trial.p_value(trial.verified(mutant.verify_tree), 1) for trial in trials]
    assert min(p_values) < FALSE_ALARM_RATE


@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        ("reached = self.depths * (reach > 0)", "reached = (self.depths > 0) * (reach > 0)"),
        ("(reached + reach / 2)", "reached"),
        ("for _ in range(num_levels - 1):", "for _ in range(0):"),
        ("self.follows[rows, node] - 1", "node - 1"),
    ],
    ids=["depth ignored", "likelihood ignored", "ancestors ignored", "parents mixed up"],
)
def test_a_bug_in_the_longest_path_is_caught(line: str, replacement: str) -> None:
    mutant = mutant_of(trees, line, replacement)
    with pytest.raises((AssertionError, IndexError)):
        assert_longest_kept_path_found(mutant.Trees.longest_path)
    assert_longest_kept_path_found(trees.Trees.longest_path)


@pytest.mark.parametrize("bug", CHAIN_BUGS)
def test_a_bug_in_the_rejection_rule_is_caught_by_its_outcomes(bug: str) -> None:
    mutant = mutant_of(verify, *CHAIN_BUGS[bug])
    trials = [full_trial(1), reduced_trial(1)]
    assert min(chain_p_value(mutant.verify_chain, trial, 1) for trial in trials) < FALSE_ALARM_RATE
    assert min(chain_p_value(verify.verify_chain, trial, 1) for trial in trials) > FALSE_ALARM_RATE


@pytest.mark.parametrize("bug", MATCH_BUGS)
def test_a_bug_in_the_token_match_rule_is_caught_by_its_outcomes(bug: str) -> None:
    mutant = mutant_of(verify, *MATCH_BUGS[bug])
    trial = full_trial(1)
    assert match_p_value(mutant.verify_token_match, trial, 1) < FALSE_ALARM_RATE
    assert match_p_value(verify.verify_token_match, trial, 1) > FALSE_ALARM_RATE


@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        (
            "wide.index_copy_(1, self.vocab, narrow)",
            "wide.index_copy_(1, self.vocab.sort().values, narrow)",
        ),
        ("wide = torch.zeros(", "wide = torch.ones("),
    ],
    ids=["vocabulary taken as ascending", "tokens outside of it never drawn"],
)
def test_a_bug_in_the_reduced_vocabulary_is_caught(
    line: str, replacement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def least_p_value() -> float:
        return min(
            chain_p_value(verify.verify_chain, reduced_trial(seed), seed) for seed in range(5)
        )

    assert least_p_value() > FALSE_ALARM_RATE
    mutant = mutant_of(draft_distributions, line, replacement)
    monkeypatch.setattr(verify, "draft_distribution", mutant.draft_distribution)
    assert least_p_value() < FALSE_ALARM_RATE


def test_counting_verdicts_behind_a_rejection_is_caught() -> None:
    mutant = mutant_of(verify, ".cumprod(1).sum(1)", ".sum(1)")
    with pytest.raises(AssertionError):
        assert_prefixes_counted(mutant.prefix_lengths)


def test_a_coin_of_0_that_accepts_everything_is_caught() -> None:
    mutant = mutant_of(verify, ".double() < target.prob_of(", ".double() <= target.prob_of(")
    with pytest.raises(AssertionError):
        assert_impossible_token_rejected(mutant.verify_chain)


@pytest.mark.parametrize(
    "line",
    [
        "counts[position] = counts[parent + 1]",
        "counts[position, column] += 1",
        "is_seen[position, column] = True",
    ],
)
def test_penalties_applied_once_per_block_are_caught(line: str) -> None:
    mutant = mutant_of(penalties, line, "pass")
    with pytest.raises(AssertionError):
        assert_penalties_grow_within_a_block(mutant.PenaltyState)


def test_the_right_code_passes_every_check() -> None:
    assert_prefixes_counted(verify.prefix_lengths)
    assert_impossible_token_rejected(verify.verify_chain)
    assert_penalties_grow_within_a_block(penalties.PenaltyState)
