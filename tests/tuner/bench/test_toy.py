from __future__ import annotations

import pytest
import torch

from tuner.bench.toy import FIRST_CONTEXT, ToyLanguage, number_sequences


def test_acceptance_by_context_is_the_overlap_of_target_and_draft() -> None:
    alphas = ToyLanguage.build().alpha_by_context
    assert [round(alpha, 3) for alpha in alphas] == [0.672, 0.692, 0.856, 0.863]


def test_token_match_accepts_less_than_the_rejection_rule_after_every_context() -> None:
    language = ToyLanguage.build()
    pairs = zip(language.match_by_context, language.alpha_by_context, strict=True)
    assert all(match < alpha for match, alpha in pairs)


def test_rows_are_distributions() -> None:
    language = ToyLanguage.build()
    for rows in (language.target, language.draft):
        assert rows.shape == (4, 4)
        torch.testing.assert_close(rows.sum(1), torch.ones(4, dtype=torch.float64))


def test_sequence_probabilities_are_products_along_the_chain() -> None:
    language = ToyLanguage.build()
    probs = language.sequence_probs(4)
    assert len(probs) == 256
    assert probs.sum().item() == pytest.approx(1)
    context, product = FIRST_CONTEXT, 1.0
    for token in (2, 0, 3, 1):
        product *= language.target[context, token].item()
        context = token
    number = int(number_sequences(torch.tensor([[2, 0, 3, 1]])))
    assert probs[number].item() == pytest.approx(product)


def test_sequences_are_numbered_first_token_first() -> None:
    assert number_sequences(torch.tensor([[0, 0, 1], [1, 0, 0], [3, 3, 3]])).tolist() == [1, 16, 63]
