"""Exact verification of drafted chains: which prefix stays and which token follows it.

Called by `verify_batch` and by the proof in `tuner.bench.prove`. Whatever the drafter does, the
kept tokens are distributed as the target alone, as long as `draft_probs` is what it drew from.
Verification is a pure function of its arguments and the uniforms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engine.verification.draft_distributions import DraftDistribution, draft_distribution
from tuner.engine.verification.drawing import NO_TOKEN, Randomness, as_uniforms, draw
from tuner.engine.verification.shapes import require_shape

Residual = Callable[[Tensor, Tensor], Tensor]
"""From target and draft rows, [R, V] float32 each, to the weights a rejected row draws from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What verification decided for each row.

    Attributes:
        accepted_len: [B] int64, draft tokens kept, 0..K.
        next_token: [B] int64, the token after them: correction or bonus. -1 where the target's
            distribution holds no positive finite mass (a fault of the model, or everything was
            masked), so that the request can be ended with an error.
        path: [B, K] int64, which of the row's draft tokens were kept, in order; what stands beyond
            accepted_len is never read.
    """

    accepted_len: Tensor
    next_token: Tensor
    path: Tensor


def positive_part(target: Tensor, draft: Tensor) -> Tensor:
    """Return max(0, target - draft): what the target has beyond the draft.

    Source: arXiv:2211.17192, algorithm 1; arXiv:2302.01318, algorithm 2.
    """
    return (target - draft).clamp_min_(0)


def prefix_lengths(verdicts: Tensor) -> Tensor:
    """Count the leading trues of each row: a token counts only while all before it were kept.

    Args:
        verdicts: [B, K] bool.

    Returns:
        [B] int64.
    """
    return verdicts.to(torch.int64).cumprod(1).sum(1)


def verify_chain(
    draft_tokens: Tensor,
    draft_probs: Tensor | None,
    target_probs: Tensor,
    randomness: Randomness,
    *,
    draft_vocab: Tensor | None = None,
    starts: Tensor | None = None,
    residual: Residual = positive_part,
) -> Verified:
    """Keep a prefix of each drafted chain so that the output is distributed as the target alone.

    Draft token x stays with probability min(1, target(x) / draft(x)); the first one that does not
    is replaced by a draw from the residual; if all stay, one more is drawn from the target.

    Args:
        draft_tokens: [B, K] int64; -1 pads rows that drafted fewer than K.
        draft_probs: [B, K, V] floating, rows sum to 1; [B, K, Vd] with `draft_vocab`; None for a
            deterministic drafter.
        target_probs: [B, K+1, V] floating, after every sampling transform; or [N, V] with `starts`.
        randomness: a generator per row, or uniforms [B, K+1] from `draw_uniforms`.
        draft_vocab: [Vd] int64, distinct token ids that `draft_probs` covers; the others have
            draft probability 0.
        starts: [B] int64, where each row's block begins in a flat `target_probs`.
        residual: what a rejected row draws from; only the proof passes another one.

    Returns:
        Verified: accepted_len [B] in 0..K, next_token [B].

    Raises:
        ShapeError: shapes disagree.
    Source: arXiv:2211.17192, algorithm 1.
    """
    target = _Target.of(draft_tokens, target_probs, starts)
    draft = draft_distribution(draft_tokens, draft_probs, draft_vocab, target.vocab_size)
    is_drafted, num_drafted = _drafted(draft_tokens)
    uniforms = as_uniforms(randomness, num_drafted, draft_tokens.shape[1] + 1)
    coins = uniforms[:, :-1]
    kept = coins * draft.prob_of_drafted().double() < target.prob_of(draft_tokens, is_drafted)
    accepted_len = prefix_lengths(kept & is_drafted)
    last_uniform = uniforms.gather(1, num_drafted.unsqueeze(1)).squeeze(1)
    is_rejected = accepted_len < num_drafted
    weights = _final_weights(target, draft, accepted_len, is_rejected, residual)
    token = draw(weights, last_uniform)
    return Verified(
        accepted_len=accepted_len,
        next_token=_or_target(token, is_rejected, target, accepted_len, last_uniform),
        path=_chain_path(draft_tokens),
    )


def verify_greedy(draft_tokens: Tensor, target_argmax: Tensor) -> Verified:
    """Keep draft tokens while each is the target's most likely one, then take the target's.

    Args:
        draft_tokens: [B, K] int64; -1 pads.
        target_argmax: [B, K+1] int64; what stands beyond a row's own block is never read.

    Raises:
        ShapeError: shapes disagree.
    """
    num_rows, width = draft_tokens.shape
    require_shape("target_argmax", target_argmax, (num_rows, width + 1))
    is_drafted, _ = _drafted(draft_tokens)
    accepted_len = prefix_lengths((draft_tokens == target_argmax[:, :-1]) & is_drafted)
    next_token = target_argmax.gather(1, accepted_len.unsqueeze(1)).squeeze(1)
    return Verified(
        accepted_len=accepted_len, next_token=next_token, path=_chain_path(draft_tokens)
    )


def verify_token_match(
    draft_tokens: Tensor,
    target_probs: Tensor,
    randomness: Randomness,
    *,
    starts: Tensor | None = None,
) -> Verified:
    """Draw from the target at each position and keep draft tokens while the draws equal them.

    Exact for any drafter, which need not know its probabilities; keeps fewer than `verify_chain`.

    Args:
        draft_tokens: [B, K] int64; -1 pads.
        target_probs: [B, K+1, V] floating; or [N, V] with `starts`.
        randomness: a generator per row, or uniforms [B, K+1]; the draw at position j uses column j.
        starts: [B] int64, where each row's block begins in a flat `target_probs`.

    Raises:
        ShapeError: shapes disagree.
    Source: arXiv:2305.09781, there called naive sampling.
    """
    target = _Target.of(draft_tokens, target_probs, starts)
    _, num_drafted = _drafted(draft_tokens)
    uniforms = as_uniforms(randomness, num_drafted, draft_tokens.shape[1] + 1)
    accepted_len = torch.zeros_like(num_drafted)
    next_token = torch.full_like(num_drafted, NO_TOKEN)
    active = torch.arange(len(draft_tokens), device=draft_tokens.device)
    for position in range(draft_tokens.shape[1] + 1):
        drawn = draw(target.rows(target.starts[active] + position), uniforms[active, position])
        next_token[active] = drawn
        goes_on = num_drafted[active] > position
        if position < draft_tokens.shape[1]:
            goes_on &= draft_tokens[active, position] == drawn
        active = active[goes_on]
        if not len(active):
            break
        accepted_len[active] += 1
    return Verified(
        accepted_len=accepted_len, next_token=next_token, path=_chain_path(draft_tokens)
    )


@dataclass(frozen=True, slots=True)
class _Target:
    """Target probabilities of all blocks, flat: row b's position j is `flat[starts[b] + j]`."""

    flat: Tensor
    starts: Tensor

    @classmethod
    def of(cls, draft_tokens: Tensor, target_probs: Tensor, starts: Tensor | None) -> _Target:
        num_rows, width = draft_tokens.shape
        if starts is not None:
            require_shape("starts", starts, (num_rows,))
            require_shape("target_probs", target_probs, (len(target_probs), target_probs.shape[-1]))
            return cls(target_probs, starts)
        vocab_size = target_probs.shape[-1]
        require_shape("target_probs", target_probs, (num_rows, width + 1, vocab_size))
        block_starts = torch.arange(num_rows, device=draft_tokens.device) * (width + 1)
        return cls(target_probs.reshape(-1, vocab_size), block_starts)

    @property
    def vocab_size(self) -> int:
        return self.flat.shape[1]

    def prob_of(self, draft_tokens: Tensor, is_drafted: Tensor) -> Tensor:
        """Return the target's probability of each draft token, [B, K] float64."""
        offsets = torch.arange(draft_tokens.shape[1], device=draft_tokens.device)
        positions = self.starts.unsqueeze(1) + offsets * is_drafted
        return self.flat[positions, draft_tokens.clamp_min(0)].double()

    def rows(self, positions: Tensor) -> Tensor:
        return self.flat[positions].float()


def _chain_path(draft_tokens: Tensor) -> Tensor:
    """Return the path along a chain, [B, K]: each token follows the one before it."""
    return torch.arange(draft_tokens.shape[1]).expand(len(draft_tokens), -1)


def _drafted(draft_tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return which draft tokens are there, [B, K] bool, and how many a row has, [B] int64."""
    num_drafted = prefix_lengths(draft_tokens >= 0)
    offsets = torch.arange(draft_tokens.shape[1], device=draft_tokens.device)
    return offsets < num_drafted.unsqueeze(1), num_drafted


def _final_weights(
    target: _Target,
    draft: DraftDistribution,
    accepted_len: Tensor,
    is_rejected: Tensor,
    residual: Residual,
) -> Tensor:
    """Return what each row's last token is drawn from, [B, V]: residual or the target itself."""
    weights = target.rows(target.starts + accepted_len)
    rejected = is_rejected.nonzero().squeeze(1)
    if len(rejected):
        draft_rows = draft.rows(rejected, accepted_len[rejected])
        weights[rejected] = residual(weights[rejected], draft_rows)
    return weights


def _or_target(
    token: Tensor,
    is_rejected: Tensor,
    target: _Target,
    accepted_len: Tensor,
    uniforms: Tensor,
) -> Tensor:
    """Draw from the target where the residual was all zero, so nothing could be drawn from it."""
    is_empty = is_rejected & (token == NO_TOKEN)
    if bool(is_empty.any()):
        positions = target.starts[is_empty] + accepted_len[is_empty]
        token[is_empty] = draw(target.rows(positions), uniforms[is_empty])
    return token
