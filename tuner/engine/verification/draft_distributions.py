"""What a drafter drew its tokens from, in the three forms drafters have.

Verification needs two things of it: the probability of each drafted token, and whole rows at the
positions of a rejection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tuner.engine.verification.drawing import NO_TOKEN
from tuner.engine.verification.shapes import ShapeError, require_shape


class DraftDistribution(Protocol):
    """The distribution behind drafted tokens [B, K]."""

    def prob_of_drafted(self) -> Tensor:
        """Return the probability of each drafted token, [B, K] float32; padding holds anything."""

    def rows(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Return whole distributions over the target's vocabulary, [R, V] float32."""


@dataclass(frozen=True, slots=True)
class CertainDraft:
    """A deterministic drafter: the drafted token has probability 1."""

    draft_tokens: Tensor
    vocab_size: int

    def prob_of_drafted(self) -> Tensor:
        """Return ones."""
        return torch.ones_like(self.draft_tokens, dtype=torch.float32)

    def rows(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Return one-hot rows."""
        tokens = self.draft_tokens[rows, positions]
        one_hot = torch.zeros(len(tokens), self.vocab_size, device=tokens.device)
        return one_hot.scatter_(1, tokens.unsqueeze(1), 1.0)


@dataclass(frozen=True, slots=True)
class FullDraft:
    """A drafter that gives probabilities over the target's whole vocabulary, [B, K, V]."""

    draft_tokens: Tensor
    drawn_at: Tensor
    probs: Tensor

    def prob_of_drafted(self) -> Tensor:
        """Gather the drafted tokens' probabilities."""
        return _gathered(self.probs, self.drawn_at, self.draft_tokens.clamp_min(0))

    def rows(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Copy the rows asked for."""
        return self.probs[rows, positions].float()


@dataclass(frozen=True, slots=True)
class ReducedDraft:
    """A drafter that knows only the tokens `vocab` [Vd]: [B, K, Vd], 0 for all others."""

    draft_tokens: Tensor
    drawn_at: Tensor
    probs: Tensor
    vocab: Tensor
    vocab_size: int

    def prob_of_drafted(self) -> Tensor:
        """Gather the drafted tokens' probabilities; refuse a token that could not be drawn.

        Raises:
            ShapeError: a drafted token is not among the draft vocabulary.
        """
        columns = torch.full((self.vocab_size,), NO_TOKEN, device=self.vocab.device)
        columns[self.vocab] = torch.arange(len(self.vocab), device=self.vocab.device)
        column = columns[self.draft_tokens.clamp_min(0)]
        is_foreign = (column == NO_TOKEN) & (self.draft_tokens >= 0)
        if bool(is_foreign.any()):
            token = int(self.draft_tokens[is_foreign][0])
            raise ShapeError(
                f"drafted token {token} is not in the draft vocabulary: "
                "give draft tokens as ids of the target's vocabulary"
            )
        return _gathered(self.probs, self.drawn_at, column.clamp_min(0))

    def rows(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Spread the rows asked for over the target's vocabulary."""
        narrow = self.probs[rows, positions].float()
        wide = torch.zeros(len(narrow), self.vocab_size, device=narrow.device)
        return wide.index_copy_(1, self.vocab, narrow)


def draft_distribution(
    draft_tokens: Tensor,
    draft_probs: Tensor | None,
    draft_vocab: Tensor | None,
    vocab_size: int,
    *,
    drawn_at: Tensor | None = None,
) -> DraftDistribution:
    """Return the form that fits what the drafter gave.

    Args:
        draft_tokens: [B, K] int64.
        draft_probs: [B, K, V], [B, K, Vd] or None for a deterministic drafter.
        draft_vocab: [Vd] int64; None where the drafter covers the whole vocabulary.
        vocab_size: V.
        drawn_at: [B, K] int64, from which row of `draft_probs` each token was drawn; None for a
            chain, whose tokens have one each.

    Raises:
        ShapeError: shapes disagree.
    """
    if draft_probs is None:
        return CertainDraft(draft_tokens, vocab_size)
    width = vocab_size if draft_vocab is None else len(draft_vocab)
    require_shape("draft_probs", draft_probs, (*draft_tokens.shape, width))
    if drawn_at is None:
        drawn_at = torch.arange(draft_tokens.shape[1], device=draft_tokens.device)
        drawn_at = drawn_at.expand_as(draft_tokens)
    if draft_vocab is None:
        return FullDraft(draft_tokens, drawn_at, draft_probs)
    return ReducedDraft(draft_tokens, drawn_at, draft_probs, draft_vocab, vocab_size)


def _gathered(probs: Tensor, drawn_at: Tensor, columns: Tensor) -> Tensor:
    rows = torch.arange(len(probs), device=probs.device).unsqueeze(1)
    return probs[rows, drawn_at, columns].float()
