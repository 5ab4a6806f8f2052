from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.engine.verification.exactness import (
    FALSE_ALARM_RATE,
    Trial,
    assert_impossible_token_rejected,
    assert_prefixes_counted,
    certain_trial,
    chain_p_value,
    full_trial,
    match_p_value,
    reduced_trial,
)
from tuner.engine.verification.drawing import new_generator
from tuner.engine.verification.shapes import ShapeError
from tuner.engine.verification.verify import (
    Verified,
    prefix_lengths,
    verify_chain,
    verify_greedy,
    verify_token_match,
)

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
TRIALS = [full_trial, reduced_trial, certain_trial]


def uniforms(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("trial_of", TRIALS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rejection_rule_is_distributed_as_the_target(
    trial_of: Callable[[int], Trial], seed: int
) -> None:
    assert chain_p_value(verify_chain, trial_of(seed), seed) > FALSE_ALARM_RATE


@pytest.mark.parametrize("trial_of", TRIALS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_token_match_rule_is_distributed_as_the_target(
    trial_of: Callable[[int], Trial], seed: int
) -> None:
    assert match_p_value(verify_token_match, trial_of(seed), seed) > FALSE_ALARM_RATE


def test_rejection_rule_accepts_the_overlap_and_token_match_the_product() -> None:
    trial = full_trial(4)
    assert trial.draft_probs is not None
    has_draft = trial.draft_tokens[:, 0] >= 0
    draft, target = trial.draft_probs[0, 0], trial.target[0]
    chain = verify_chain(trial.draft_tokens, trial.draft_probs, trial.target_probs, trial.uniforms)
    match = verify_token_match(trial.draft_tokens, trial.target_probs, trial.uniforms)
    accepted = [
        (verified.accepted_len[has_draft] > 0).double().mean().item() for verified in (chain, match)
    ]
    assert accepted[0] == pytest.approx(torch.minimum(draft, target).sum().item(), abs=0.01)
    assert accepted[1] == pytest.approx((draft * target).sum().item(), abs=0.01)
    assert accepted[1] < accepted[0]


def test_only_the_run_before_the_first_rejection_counts() -> None:
    assert_prefixes_counted(prefix_lengths)


def test_a_coin_of_0_does_not_accept_an_impossible_token() -> None:
    assert_impossible_token_rejected(verify_chain)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_distributions_always_accept_and_never_give_an_impossible_token(
    dtype: torch.dtype,
) -> None:
    row = torch.tensor([0.5, 0.5, 0.0], dtype=dtype)
    rows = 2000
    drafted = torch.arange(rows).remainder(2).unsqueeze(1)
    coins = uniforms(rows, 2)
    coins[:4, 0] = torch.tensor([0.0, 0.0, 1 - 2**-53, 1 - 2**-53], dtype=torch.float64)
    verified = verify_chain(drafted, row.expand(rows, 1, 3), row.expand(rows, 2, 3), coins)
    assert (verified.accepted_len == 1).all()
    assert set(verified.next_token.tolist()) == {0, 1}


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_empty_residual_draws_from_the_target(dtype: torch.dtype) -> None:
    target = torch.tensor([0.25, 0.25, 0.0, 0.25], dtype=dtype)
    draft = torch.tensor([0.5, 0.25, 0.0, 0.25], dtype=dtype)
    rows = 3000
    coins = uniforms(rows, 2)
    coins[:, 0] = 0.99
    verified = verify_chain(
        torch.zeros(rows, 1).long(), draft.expand(rows, 1, 4), target.expand(rows, 2, 4), coins
    )
    assert (verified.accepted_len == 0).all()
    counts = torch.bincount(verified.next_token, minlength=4)
    assert counts[2] == 0
    assert (counts[[0, 1, 3]] > 900).all()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**20),
    dtype=st.sampled_from(DTYPES),
    k=st.integers(0, 4),
    vocab=st.integers(2, 9),
    peaked=st.booleans(),
)
def test_tokens_are_always_possible_under_the_target(
    seed: int, dtype: torch.dtype, k: int, vocab: int, *, peaked: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 30, k + 1, vocab, generator=generator) * (40 if peaked else 1)
    target, draft = (part.softmax(-1).to(dtype) for part in logits)
    draft = draft[:, :k]
    drafted = torch.multinomial(draft.float().reshape(-1, vocab), 1, generator=generator).reshape(
        30, k
    )
    verified = verify_chain(drafted, draft, target, uniforms(30, k + 1, seed))
    row = torch.arange(30)
    assert (verified.next_token >= 0).all()
    assert (target[row, verified.accepted_len, verified.next_token] > 0).all()


def test_a_draft_that_filters_exclude_is_never_accepted() -> None:
    rows = 10_000
    target = torch.tensor([0.7 / 0.9, 0.2 / 0.9, 0.0]).expand(rows, 2, 3)
    draft = torch.full((rows, 1, 3), 1 / 3)
    verified = verify_chain(torch.full((rows, 1), 2), draft, target, uniforms(rows, 2))
    assert verified.accepted_len.sum() == 0
    assert 2 not in verified.next_token


def test_honest_draft_probabilities_leave_the_target_and_false_ones_do_not() -> None:
    rows = 100_000
    target = torch.tensor([0.6, 0.3, 0.1])
    drawn_from = torch.tensor([0.2, 0.2, 0.6])
    generator = torch.Generator().manual_seed(0)
    drafted = torch.multinomial(drawn_from, rows, replacement=True, generator=generator)

    def frequencies(claimed: torch.Tensor) -> torch.Tensor:
        verified = verify_chain(
            drafted.unsqueeze(1),
            claimed.expand(rows, 1, 3),
            target.expand(rows, 2, 3),
            uniforms(rows, 2),
        )
        first = torch.where(verified.accepted_len > 0, drafted, verified.next_token)
        return torch.bincount(first, minlength=3) / rows

    torch.testing.assert_close(frequencies(drawn_from), target, atol=0.006, rtol=0)
    biased = torch.tensor([0.64, 0.18, 0.18])
    torch.testing.assert_close(frequencies(torch.full((3,), 1 / 3)), biased, atol=0.006, rtol=0)


@pytest.mark.parametrize("rule", ["chain", "match"])
def test_a_row_gets_the_same_tokens_alone_and_among_others(rule: str) -> None:
    generator = torch.Generator().manual_seed(3)
    rows, k, vocab = 8, 4, 700
    target = torch.randn(rows, k + 1, vocab, generator=generator).softmax(-1)
    draft = (target[:, :k] + torch.rand(rows, k, vocab, generator=generator) * 1e-3) / 2
    draft = draft / draft.sum(-1, keepdim=True)
    drafted = torch.multinomial(draft.reshape(-1, vocab), 1, generator=generator).reshape(rows, k)
    for row in range(rows):
        drafted[row, row % (k + 1) :] = -1

    def verified(chosen: list[int], width: int) -> Verified:
        generators = [new_generator(row) for row in chosen]
        if rule == "match":
            return verify_token_match(
                drafted[chosen, :width], target[chosen, : width + 1], generators
            )
        return verify_chain(
            drafted[chosen, :width], draft[chosen, :width], target[chosen, : width + 1], generators
        )

    together = verified(list(range(rows)), k)
    for row in range(rows):
        alone = verified([row], row % (k + 1))
        assert alone.accepted_len.item() == together.accepted_len[row].item()
        assert alone.next_token.item() == together.next_token[row].item()


def test_flat_blocks_of_different_lengths_give_the_same_as_padded_ones() -> None:
    generator = torch.Generator().manual_seed(5)
    target = torch.randn(3, 3, 6, generator=generator).softmax(-1)
    draft = torch.randn(3, 2, 6, generator=generator).softmax(-1)
    drafted = torch.tensor([[1, 2], [-1, -1], [4, -1]])
    coins = uniforms(3, 3)
    flat = torch.cat([target[0], target[1, :1], target[2, :2]])
    starts = torch.tensor([0, 3, 4])
    padded = verify_chain(drafted, draft, target, coins)
    packed = verify_chain(drafted, draft, flat, coins, starts=starts)
    assert torch.equal(padded.accepted_len, packed.accepted_len)
    assert torch.equal(padded.next_token, packed.next_token)
    padded = verify_token_match(drafted, target, coins)
    packed = verify_token_match(drafted, flat, coins, starts=starts)
    assert torch.equal(padded.next_token, packed.next_token)


def test_greedy_keeps_what_the_target_would_have_said_and_corrects_the_rest() -> None:
    drafted = torch.tensor([[5, 6, 7], [5, 0, 7], [0, 6, 7], [5, 6, -1], [-1, -1, -1]])
    argmax = torch.tensor([[5, 6, 7, 8]] * 5)
    verified = verify_greedy(drafted, argmax)
    assert verified.accepted_len.tolist() == [3, 1, 0, 2, 0]
    assert verified.next_token.tolist() == [8, 6, 5, 7, 5]


def test_greedy_passes_on_that_no_token_can_be_chosen() -> None:
    verified = verify_greedy(torch.tensor([[5, -1]]), torch.tensor([[5, -1, 3]]))
    assert verified.accepted_len.tolist() == [1]
    assert verified.next_token.tolist() == [-1]


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), 0.0])
def test_a_broken_target_gives_no_token_and_spares_the_other_rows(broken: float) -> None:
    target = torch.full((2, 2, 4), 0.25)
    target[0] = broken
    draft = torch.full((2, 1, 4), 0.25)
    drafted = torch.zeros(2, 1).long()
    coins = torch.full((2, 2), 0.6, dtype=torch.float64)
    for verified in (
        verify_chain(drafted, draft, target, coins),
        verify_token_match(drafted, target, coins),
    ):
        assert verified.next_token[0] == -1
        assert verified.next_token[1] == 2


def test_a_row_without_a_draft_draws_from_the_target_alone() -> None:
    target = torch.tensor([[[0.0, 0.0, 1.0]]])
    verified = verify_chain(torch.zeros(1, 0).long(), None, target, [new_generator(1)])
    assert verified.accepted_len.tolist() == [0]
    assert verified.next_token.tolist() == [2]


def test_disagreeing_shapes_are_refused_with_both_shapes_named() -> None:
    target = torch.full((2, 3, 4), 0.25)
    drafted = torch.zeros(2, 2).long()
    coins = uniforms(2, 3)
    with pytest.raises(ShapeError, match=r"target_probs has shape \[2, 2, 4\]"):
        verify_chain(drafted, None, target[:, :2], coins)
    with pytest.raises(
        ShapeError, match=r"draft_probs has shape \[2, 1, 4\], expected \[2, 2, 4\]"
    ):
        verify_chain(drafted, target[:, :1], target, coins)
    with pytest.raises(ShapeError, match="uniforms has shape"):
        verify_chain(drafted, None, target, coins[:, :2])
    with pytest.raises(ShapeError, match="num_drafted has shape"):
        verify_chain(drafted, None, target, [new_generator(1)])
    with pytest.raises(ShapeError, match="target_argmax has shape"):
        verify_greedy(drafted, drafted)


def test_a_drafted_token_outside_the_draft_vocabulary_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match="drafted token 3 is not in the draft vocabulary"):
        verify_chain(
            torch.tensor([[3]]),
            torch.tensor([[[0.5, 0.5]]]),
            torch.full((1, 2, 4), 0.25),
            uniforms(1, 2),
            draft_vocab=torch.tensor([0, 2]),
        )
