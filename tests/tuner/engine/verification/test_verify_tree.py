from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.engine.verification.exactness import FALSE_ALARM_RATE, random_rows
from tests.tuner.engine.verification.tree_exactness import (
    TreeTrial,
    assert_longest_kept_path_found,
    certain_trees,
    full_trees,
    narrow_trees,
    reduced_trees,
)
from tuner.engine.verification.drawing import new_generator
from tuner.engine.verification.shapes import ShapeError
from tuner.engine.verification.trees import Trees
from tuner.engine.verification.verify import verify_chain, verify_token_match
from tuner.engine.verification.verify_tree import (
    DenseTarget,
    verify_tree,
    verify_tree_greedy,
    verify_tree_match,
)

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
TRIALS = [full_trees, reduced_trees, narrow_trees, certain_trees]
STAR = (-1, -1, -1)


def uniforms(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, width, generator=generator, dtype=torch.float64)


def stars(tokens: torch.Tensor) -> Trees:
    """Rows [R, 3] of candidates for the next token."""
    return Trees.of(tokens.tolist(), [STAR] * len(tokens))


@pytest.mark.parametrize("trial_of", TRIALS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_trees_under_the_rejection_rule_are_distributed_as_the_target(
    trial_of: Callable[[int], TreeTrial], seed: int
) -> None:
    trial = trial_of(seed)
    assert trial.p_value(trial.verified(verify_tree), seed) > FALSE_ALARM_RATE


@pytest.mark.parametrize("trial_of", TRIALS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_trees_under_the_token_match_rule_are_distributed_as_the_target(
    trial_of: Callable[[int], TreeTrial], seed: int
) -> None:
    trial = trial_of(seed)
    target = DenseTarget(trial.target[trial.contexts])
    verified = verify_tree_match(trial.trees, target, trial.uniforms)
    assert trial.p_value(verified, seed) > FALSE_ALARM_RATE


def test_more_candidates_keep_more_and_the_rejection_rule_more_than_matching() -> None:
    target, draft = random_rows(2, 6, torch.Generator().manual_seed(3))
    rows = 20_000
    generator = torch.Generator().manual_seed(4)
    drawn = torch.multinomial(draft.expand(rows, -1), 3, generator=generator)
    kept = []
    for width in (1, 2, 3):
        trees = Trees.of(drawn[:, :width].tolist(), [STAR[:width]] * rows)
        verified = verify_tree(
            trees,
            DenseTarget(target.expand(rows, width + 1, -1)),
            uniforms(rows, width + 1),
            draft_probs=draft.expand(rows, width, -1),
        )
        kept.append(verified.accepted_len.double().mean().item())
    matched = verify_tree_match(
        stars(drawn), DenseTarget(target.expand(rows, 4, -1)), uniforms(rows, 4)
    )
    assert kept[0] == pytest.approx(torch.minimum(target, draft).sum().item(), abs=0.01)
    assert kept[0] + 0.02 < kept[1] < kept[2] - 0.02
    assert matched.accepted_len.double().mean().item() < kept[2] - 0.02


def test_a_chain_is_verified_as_a_tree_to_the_last_bit() -> None:
    generator = torch.Generator().manual_seed(5)
    rows, k, vocab = 400, 4, 9
    target = torch.randn(rows, k + 1, vocab, generator=generator).softmax(-1)
    draft = torch.randn(rows, k, vocab, generator=generator).softmax(-1)
    drafted = torch.multinomial(draft.reshape(-1, vocab), 1, generator=generator).reshape(rows, k)
    coins = uniforms(rows, k + 1)
    trees = Trees.of(drafted.tolist(), [None] * rows)
    for tree, chain in (
        (
            verify_tree(trees, DenseTarget(target), coins, draft_probs=draft),
            verify_chain(drafted, draft, target, coins),
        ),
        (
            verify_tree_match(trees, DenseTarget(target), coins),
            verify_token_match(drafted, target, coins),
        ),
    ):
        assert torch.equal(tree.accepted_len, chain.accepted_len)
        assert torch.equal(tree.next_token, chain.next_token)
        for row, kept in enumerate(tree.accepted_len.tolist()):
            assert tree.path[row, :kept].tolist() == list(range(kept))


def test_the_longest_path_wins_and_among_equals_the_likeliest() -> None:
    assert_longest_kept_path_found(Trees.longest_path)


def test_greedy_trees_follow_the_targets_likeliest_tokens() -> None:
    """Row 0 turns into the second branch; row 1 is a chain, row 2 has no draft."""
    trees = Trees.of([(5, 6, 7, 8, 9, 1), (5, 6), ()], [(-1, -1, 1, 0, 2, 2), None, ()])
    argmax = torch.tensor([[6, 0, 7, 1, 0, 0, 3], [5, 0, 4, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0]])
    verified = verify_tree_greedy(trees, argmax)
    assert verified.accepted_len.tolist() == [3, 1, 0]
    assert verified.path[0, :3].tolist() == [1, 2, 5]
    assert verified.next_token.tolist() == [3, 0, 2]


def test_greedy_passes_on_that_no_token_can_be_chosen() -> None:
    verified = verify_tree_greedy(Trees.of([(5, 6)], [(-1, -1)]), torch.tensor([[6, 0, -1]]))
    assert verified.accepted_len.tolist() == [1]
    assert verified.next_token.tolist() == [-1]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), seed=st.integers(0, 2**20))
def test_greedy_trees_keep_what_a_walk_by_hand_keeps(data: st.DataObject, seed: int) -> None:
    """Equal siblings are allowed: the walk by hand tries each of them."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(4):
        size = data.draw(st.integers(0, 12))
        parents = tuple(data.draw(st.integers(-1, node - 1)) for node in range(size))
        rows.append((torch.randint(0, 3, (size,), generator=generator).tolist(), parents))
    argmax = torch.randint(0, 3, (4, max(len(draft) for draft, _ in rows) + 1), generator=generator)
    trees = Trees.of([draft for draft, _ in rows], [parents for _, parents in rows])
    verified = verify_tree_greedy(trees, argmax)
    for row, (draft, parents) in enumerate(rows):
        wanted = argmax[row].tolist()

        def longest(
            position: int,
            draft: list[int] = draft,
            parents: tuple[int, ...] = parents,
            wanted: list[int] = wanted,
        ) -> int:
            return max(
                (
                    1 + longest(node + 1)
                    for node, parent in enumerate(parents)
                    if parent == position - 1 and draft[node] == wanted[position]
                ),
                default=0,
            )

        kept = int(verified.accepted_len[row])
        path = verified.path[row, :kept].tolist()
        assert kept == longest(0)
        assert [parents[node] for node in path] == [-1, *path[:-1]][:kept]
        ends = [0, *(node + 1 for node in path)]
        assert [draft[node] for node in path] == [wanted[end] for end in ends[:-1]]
        assert int(verified.next_token[row]) == wanted[ends[-1]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_distributions_always_keep_the_first_child(dtype: torch.dtype) -> None:
    row = torch.tensor([0.5, 0.25, 0.25, 0.0], dtype=dtype)
    rows = 2000
    order = torch.tensor([[0, 1, 2], [1, 2, 0], [2, 0, 1]]).repeat(rows // 3 + 1, 1)[:rows]
    coins = uniforms(rows, 4)
    coins[:3, 0] = torch.tensor([0.0, 1 - 2**-53, 1 - 2**-53], dtype=torch.float64)
    verified = verify_tree(
        stars(order),
        DenseTarget(row.expand(rows, 4, 4)),
        coins,
        draft_probs=row.expand(rows, 3, 4),
    )
    assert (verified.accepted_len == 1).all()
    assert (verified.path[:, 0] == 0).all()
    assert set(verified.next_token.tolist()) == {0, 1, 2}


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_empty_residual_draws_from_what_the_target_has(dtype: torch.dtype) -> None:
    """The draft holds more than the target everywhere, as rounding may bring about."""
    target = torch.tensor([0.25, 0.25, 0.0, 0.25], dtype=dtype)
    draft = torch.tensor([0.5, 0.25, 0.0, 0.25], dtype=dtype)
    rows = 3000
    coins = uniforms(rows, 2)
    coins[:, 0] = 0.99
    verified = verify_tree(
        Trees.of([(0,)] * rows, [(-1,)] * rows),
        DenseTarget(target.expand(rows, 2, 4)),
        coins,
        draft_probs=draft.expand(rows, 1, 4),
    )
    assert (verified.accepted_len == 0).all()
    counts = torch.bincount(verified.next_token, minlength=4)
    assert counts[2] == 0
    assert (counts[[0, 1, 3]] > 900).all()


def test_a_coin_of_0_does_not_keep_an_impossible_token() -> None:
    verified = verify_tree(
        Trees.of([(0, 2, 1)], [STAR]),
        DenseTarget(torch.tensor([[0.0, 1.0, 0.0]]).expand(1, 4, 3)),
        torch.zeros(1, 4, dtype=torch.float64),
        draft_probs=torch.tensor([[0.8, 0.0, 0.2]]).expand(1, 3, 3),
    )
    assert verified.accepted_len.tolist() == [1]
    assert verified.path[0, 0] == 2


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**20),
    dtype=st.sampled_from(DTYPES),
    size=st.integers(0, 9),
    vocab=st.integers(2, 9),
    peaked=st.booleans(),
)
def test_tokens_are_always_possible_under_the_target(
    seed: int, dtype: torch.dtype, size: int, vocab: int, *, peaked: bool
) -> None:
    """Whatever the draft claims, and whichever tokens it gives."""
    generator = torch.Generator().manual_seed(seed)
    scale = 40 if peaked else 1
    target = (torch.randn(20, size + 1, vocab, generator=generator) * scale).softmax(-1).to(dtype)
    draft = (torch.randn(20, size, vocab, generator=generator) * scale).softmax(-1).to(dtype)
    drafted = torch.randint(0, vocab, (20, size), generator=generator)
    parents = [
        tuple(int(torch.randint(-1, node, (1,), generator=generator)) for node in range(size))
        for _ in range(20)
    ]
    verified = verify_tree(
        Trees.of(drafted.tolist(), parents),
        DenseTarget(target),
        uniforms(20, size + 1, seed),
        draft_probs=draft,
    )
    for row, kept in enumerate(verified.accepted_len.tolist()):
        position = 0
        for node in verified.path[row, :kept].tolist():
            assert parents[row][node] == position - 1
            assert target[row, position, drafted[row, node]] > 0
            position = node + 1
        assert target[row, position, verified.next_token[row]] > 0


def test_honest_draft_probabilities_leave_the_target_and_false_ones_do_not() -> None:
    rows = 60_000
    target = torch.tensor([0.5, 0.3, 0.1, 0.1])
    drawn_from = torch.tensor([0.1, 0.2, 0.6, 0.1])
    generator = torch.Generator().manual_seed(0)
    drafted = torch.multinomial(drawn_from.expand(rows, -1), 2, generator=generator)
    trees = Trees.of(drafted.tolist(), [(-1, -1)] * rows)

    def frequencies(claimed: torch.Tensor) -> torch.Tensor:
        verified = verify_tree(
            trees,
            DenseTarget(target.expand(rows, 3, 4)),
            uniforms(rows, 3),
            draft_probs=claimed.expand(rows, 2, 4),
        )
        followed = drafted.gather(1, verified.path[:, :1].clamp_min(0)).squeeze(1)
        first = torch.where(verified.accepted_len > 0, followed, verified.next_token)
        return torch.bincount(first, minlength=4) / rows

    torch.testing.assert_close(frequencies(drawn_from), target, atol=0.008, rtol=0)
    biased = frequencies(torch.full((4,), 0.25))
    assert (biased - target).abs().sum() / 2 > 0.05


@pytest.mark.parametrize("rule", ["rejection", "match"])
def test_a_row_gets_the_same_tokens_alone_and_among_others(rule: str) -> None:
    generator = torch.Generator().manual_seed(3)
    rows, vocab = 8, 700
    parents = [tuple(range(-1, row)) if row % 3 else (-1,) * row for row in range(1, rows + 1)]
    parents = [
        (-1, -1, 0, 0, 1, 3, 3)[: len(tree)] if row % 2 else tree
        for row, tree in enumerate(parents)
    ]
    width = max(len(tree) for tree in parents)
    target = torch.randn(rows, width + 1, vocab, generator=generator).softmax(-1)
    draft = (target[:, :width] + torch.rand(rows, width, vocab, generator=generator) * 1e-3) / 2
    draft = draft / draft.sum(-1, keepdim=True)
    drafted = [
        torch.multinomial(draft[row, 0], len(tree), generator=generator).tolist()
        for row, tree in enumerate(parents)
    ]

    def verified(chosen: list[int]) -> tuple[list[int], list[int]]:
        trees = Trees.of([drafted[row] for row in chosen], [parents[row] for row in chosen])
        size = trees.draft_tokens.shape[1]
        dense = DenseTarget(target[chosen, : size + 1])
        generators = [new_generator(row) for row in chosen]
        if rule == "match":
            found = verify_tree_match(trees, dense, generators)
        else:
            found = verify_tree(trees, dense, generators, draft_probs=draft[chosen, :size])
        return found.accepted_len.tolist(), found.next_token.tolist()

    together = verified(list(range(rows)))
    for row in range(rows):
        assert verified([row]) == ([together[0][row]], [together[1][row]])


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), 0.0])
def test_a_broken_target_gives_no_token_and_spares_the_other_rows(broken: float) -> None:
    target = torch.full((2, 4, 4), 0.25)
    target[0] = broken
    coins = torch.full((2, 4), 0.6, dtype=torch.float64)
    for verified in (
        verify_tree(
            stars(torch.tensor([[0, 1, 3], [0, 1, 3]])),
            DenseTarget(target),
            coins,
            draft_probs=torch.tensor([0.7, 0.1, 0.1, 0.1]).expand(2, 3, 4),
        ),
        verify_tree_match(stars(torch.tensor([[0, 1, 3], [0, 1, 3]])), DenseTarget(target), coins),
    ):
        assert verified.next_token[0] == -1
        assert verified.next_token[1] >= 0


def test_a_parent_behind_its_child_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match="draft token 1 has parent 1"):
        Trees.of([(4, 5)], [(-1, 1)])


def test_disagreeing_shapes_are_refused() -> None:
    trees = stars(torch.tensor([[0, 1, 2]]))
    target = DenseTarget(torch.full((1, 4, 4), 0.25))
    with pytest.raises(
        ShapeError, match=r"draft_probs has shape \[1, 2, 4\], expected \[1, 3, 4\]"
    ):
        verify_tree(trees, target, uniforms(1, 4), draft_probs=torch.full((1, 2, 4), 0.25))
    with pytest.raises(ShapeError, match="uniforms has shape"):
        verify_tree_match(trees, target, uniforms(1, 3))
    with pytest.raises(ShapeError, match="target_argmax has shape"):
        verify_tree_greedy(trees, torch.zeros(1, 3).long())
