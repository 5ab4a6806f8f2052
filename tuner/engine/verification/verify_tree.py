"""Exact verification of drafted trees: which path stays and which token follows it.

Called by `verify_batch` and by the proof in `tuner.bench.prove`. Sampled rows walk from the root,
one position a row and level, so the target's distribution is made only where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tuner.engine.verification.draft_distributions import DraftDistribution, draft_distribution
from tuner.engine.verification.drawing import NO_TOKEN, Randomness, as_uniforms, draw
from tuner.engine.verification.shapes import require_shape
from tuner.engine.verification.trees import Trees
from tuner.engine.verification.verify import Verified, positive_part


class TargetRows(Protocol):
    """The target's distributions of R rows, after every sampling transform."""

    @property
    def vocab_size(self) -> int:
        """V."""

    def at(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Return those at positions [A] of rows [A], [A, V] float32; the caller may change them."""


@dataclass(frozen=True, slots=True)
class DenseTarget:
    """Distributions at every position, [R, T+1, V] floating, made beforehand."""

    probs: Tensor

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.probs.shape[-1]

    def at(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Copy the rows asked for."""
        return self.probs[rows, positions].float()


_Choice = tuple[Tensor, Tensor]
"""The draft tokens followed, [A], -1 where the walk ends; and the tokens it then ends with, [A]."""


def verify_tree(
    trees: Trees,
    target: TargetRows,
    randomness: Randomness,
    *,
    draft_probs: Tensor | None,
    draft_vocab: Tensor | None = None,
) -> Verified:
    """Keep a path of each drafted tree so that the output is distributed as the target alone.

    The children of a token are tested in turn. The first stays with probability
    min(1, target / draft). Once it is rejected, the target is replaced by what it has beyond the
    draft, the rejected token is taken out of the draft, both are normalised, and the next one is
    tested. If none stays, the last token is drawn from what is left of the target. A child to which
    the draft gives no probability is a guess: it stays with the target's probability of it.

    Args:
        trees: the drafts of R rows.
        target: distributions of these rows.
        randomness: a generator per row, or uniforms [R, T+1].
        draft_probs: [R, T, V] floating, or [R, T, Vd] with `draft_vocab`: what the children of each
            position were drawn from without replacement, in their order. How many they are must not
            depend on which tokens were drawn. None for a deterministic drafter.
        draft_vocab: [Vd] int64, distinct token ids that `draft_probs` covers.

    Raises:
        ShapeError: shapes disagree.
    Source: recursive rejection sampling without replacement, arXiv:2402.14160, section 3.2;
        arXiv:2402.12374, algorithm 2.
    """
    if draft_probs is None or trees.is_empty:
        return verify_tree_match(trees, target, randomness)
    draft = draft_distribution(
        trees.draft_tokens, draft_probs, draft_vocab, target.vocab_size, drawn_at=trees.follows
    )
    contest = _Contest(
        trees=trees,
        target=target,
        draft=draft,
        claims=draft.prob_of_drafted(),
        uniforms=as_uniforms(randomness, trees.num_drafted, trees.num_columns),
    )
    return _walk(trees, contest.choose)


def verify_tree_match(trees: Trees, target: TargetRows, randomness: Randomness) -> Verified:
    """Draw from the target at each position and follow the child that equals the draw.

    Exact for any drafter; for one that does not draw at random nothing keeps more.

    Args:
        trees: the drafts of R rows.
        target: distributions of these rows.
        randomness: a generator per row, or uniforms [R, T+1]; the draw at position j uses column j.

    Raises:
        ShapeError: shapes disagree.
    Source: arXiv:2305.09781, there called naive sampling.
    """
    uniforms = as_uniforms(randomness, trees.num_drafted, trees.num_columns)

    def choose(rows: Tensor, positions: Tensor) -> _Choice:
        tokens = draw(target.at(rows, positions), uniforms[rows, positions])
        return trees.child_with(rows, positions, tokens), tokens

    return _walk(trees, choose)


def verify_tree_greedy(trees: Trees, target_argmax: Tensor) -> Verified:
    """Keep the longest path of tokens that each are the target's likeliest, then take the target's.

    Args:
        trees: the drafts of R rows.
        target_argmax: [R, T+1] int64; what stands beyond a row's own positions is never read.

    Raises:
        ShapeError: shapes disagree.
    """
    require_shape("target_argmax", target_argmax, (len(trees.num_drafted), trees.num_columns))
    is_drafted = trees.depths > 0
    is_kept = is_drafted & (trees.draft_tokens == target_argmax.gather(1, trees.follows))
    path = trees.longest_path(is_kept.double())
    next_token = target_argmax.gather(1, path.end.unsqueeze(1)).squeeze(1)
    return Verified(accepted_len=path.length, next_token=next_token, path=path.nodes)


def _walk(trees: Trees, choose: Callable[[Tensor, Tensor], _Choice]) -> Verified:
    """Go down all trees at once, one level a round, until every row has ended."""
    accepted_len = torch.zeros_like(trees.num_drafted)
    next_token = torch.full_like(trees.num_drafted, NO_TOKEN)
    path = torch.full_like(trees.draft_tokens, NO_TOKEN)
    rows = torch.arange(len(accepted_len), device=accepted_len.device)
    positions = torch.zeros_like(rows)
    while len(rows):
        children, tokens = choose(rows, positions)
        goes_on = children >= 0
        next_token[rows[~goes_on]] = tokens[~goes_on]
        rows, children = rows[goes_on], children[goes_on]
        path[rows, accepted_len[rows]] = children
        accepted_len[rows] += 1
        positions = children + 1
    return Verified(accepted_len=accepted_len, next_token=next_token, path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contest:
    """The siblings of each position against the target, in their order.

    Attributes:
        trees: the drafts of R rows.
        target: distributions of these rows.
        draft: what children were drawn from.
        claims: [R, T], probability of each draft token before any of its siblings was drawn.
        uniforms: [R, T+1]; a draft token's coin stands in its column, the last draw's behind them.
    """

    trees: Trees
    target: TargetRows
    draft: DraftDistribution
    claims: Tensor
    uniforms: Tensor

    def choose(self, rows: Tensor, positions: Tensor) -> _Choice:
        """Return the child that stays, or the token drawn where none does."""
        weights = self.target.at(rows, positions)
        first = self.trees.children[rows, positions, 0]
        has_child = first >= 0
        child = first.clamp_min(0)
        is_kept = has_child & self._is_kept(rows, child, weights, self.claims[rows, child])
        kept = first.where(is_kept, NO_TOKEN)
        contested = (has_child & ~is_kept).nonzero().squeeze(1)
        if len(contested):
            kept[contested], weights[contested] = self._try_others(
                rows[contested], positions[contested], weights[contested]
            )
        return kept, self._last_tokens(rows, kept, weights)

    def _try_others(
        self, rows: Tensor, positions: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Test the children behind the first, which was rejected.

        Args:
            rows: [A] int64.
            positions: [A] int64.
            weights: [A, V], the target.

        Returns:
            The child that stays, [A], -1 for none; what is left of the target where none does.
        """
        kept = torch.full_like(rows, NO_TOKEN)
        children = self.trees.children[rows, positions]
        open_rows = torch.arange(len(rows), device=rows.device)
        draft = self.draft.rows(rows, positions)
        for rank in range(children.shape[1]):
            child = children[open_rows, rank]
            if rank:
                claims = draft.gather(1, self._tokens(rows[open_rows], child)).squeeze(1)
                left = weights[open_rows]
                is_kept = (child >= 0) & self._is_kept(rows[open_rows], child, left, claims)
                kept[open_rows] = child.where(is_kept, NO_TOKEN)
                is_open = (child >= 0) & ~is_kept
                open_rows, child, draft = open_rows[is_open], child[is_open], draft[is_open]
            if not len(open_rows):
                break
            tokens = self._tokens(rows[open_rows], child)
            weights[open_rows], draft = _without(weights[open_rows], draft, tokens)
        return kept, weights

    def _tokens(self, rows: Tensor, children: Tensor) -> Tensor:
        """Return some draft tokens, [A, 1]; anything where there is none."""
        return self.trees.draft_tokens[rows, children.clamp_min(0)].clamp_min(0).unsqueeze(1)

    def _is_kept(self, rows: Tensor, children: Tensor, weights: Tensor, claims: Tensor) -> Tensor:
        """Toss each child's coin, [A] bool.

        Args:
            rows: [A] int64.
            children: [A] int64.
            weights: [A, V], what is left of the target.
            claims: [A], the draft's probability of each child among what is left of it.
        """
        certain = claims.double().where(claims > 0, 1.0)
        wanted = weights.gather(1, self._tokens(rows, children)).squeeze(1)
        return self.uniforms[rows, children] * certain < wanted.double()

    def _last_tokens(self, rows: Tensor, kept: Tensor, weights: Tensor) -> Tensor:
        """Draw the last token of the rows whose walk ends here, [A]."""
        ends = (kept < 0).nonzero().squeeze(1)
        uniforms = self.uniforms[rows[ends], self.trees.num_drafted[rows[ends]]]
        tokens = torch.full_like(rows, NO_TOKEN)
        tokens[ends] = draw(weights[ends], uniforms)
        return tokens


def _without(target: Tensor, draft: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return what is left of target and draft once a child was rejected, [A, V] each, normalised.

    The target stays as it is where it has nothing beyond the draft, which only rounding can bring
    about; the draft becomes 0 where it held no other token.

    Args:
        target: [A, V].
        draft: [A, V], changed in place.
        tokens: [A, 1] int64, the rejected ones.
    """
    is_guess = ~(draft.gather(1, tokens) > 0)
    guess = torch.zeros_like(draft).scatter_(1, tokens, 1.0)
    residual = positive_part(target, guess.where(is_guess, draft))
    is_empty = ~(residual > 0).any(1, keepdim=True)
    return _normalised(target.where(is_empty, residual)), _normalised(draft.scatter_(1, tokens, 0))


def _normalised(weights: Tensor) -> Tensor:
    """Return rows that sum to 1; a row of zeros stays one."""
    total = weights.cumsum(1, dtype=torch.float64)[:, -1:]
    return weights / total.where(total > 0, 1.0).float()
