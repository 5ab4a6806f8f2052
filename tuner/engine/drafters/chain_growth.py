"""Grows chains token by token for drafters that are whole models: one pass a token for all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from tuner.engine.drafters.base import Draft, DraftAsk
from tuner.engine.drafters.ending import goes_on, is_worth_a_pass, token_probs
from tuner.engine.verification.drawing import draw


@dataclass(slots=True, kw_only=True)
class Chain:
    """One row while its draft grows.

    Attributes:
        ask: what is wanted.
        length: tokens wanted, at least 1.
        token_ids: guessed so far.
        probs: what each was drawn from, [reduced V]; empty for a deterministic chain.
        has_ended: True once its newest token is too doubtful for another to follow.
    """

    ask: DraftAsk
    length: int
    token_ids: list[int] = field(default_factory=list)
    probs: list[Tensor] = field(default_factory=list)
    has_ended: bool = False

    @property
    def is_growing(self) -> bool:
        """True while more tokens are wanted."""
        return len(self.token_ids) < self.length and not self.has_ended

    def draft(self) -> Draft:
        """Return what was guessed."""
        probs = torch.stack(self.probs) if self.probs else None
        return Draft(token_ids=tuple(self.token_ids), probs=probs)


Advance: TypeAlias = Callable[[Sequence[Chain]], Tensor]
"""Reads the newest token of each chain; returns the logits [B, reduced V] after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainGrowth:
    """How chains grow.

    Attributes:
        vocab: ids behind the columns of the logits; None where columns are ids.
        can_draw: sampled rows draw their tokens and keep what they drew from; otherwise every
            chain takes the likeliest tokens.
        min_confidence: a token less probable than this is the last of its draft, where the draft
            has no outlook. It stays in the draft, since to drop it for what it is would bias what
            is drawn.
    """

    vocab: Sequence[int] | None = None
    can_draw: bool = True
    min_confidence: float = 0.0

    def grow(self, chains: Sequence[Chain], first: Tensor, advance: Advance) -> None:
        """Guess for all chains.

        Args:
            chains: B empty ones.
            first: [B, reduced V] logits after the last committed token of each.
            advance: one pass over those that go on.
        """
        growing, logits = chains, first
        while True:
            going = goes_on([chain.ask for chain in growing], logits)
            if not all(going):
                logits = logits[torch.tensor(going, device=logits.device)]
                growing = [chain for chain, goes in zip(growing, going, strict=True) if goes]
            if growing:
                self._guess(growing, logits)
            growing = [chain for chain in growing if chain.is_growing]
            if not growing or not is_worth_a_pass([chain.ask for chain in growing]):
                return
            logits = advance(growing)

    def _guess(self, chains: Sequence[Chain], logits: Tensor) -> None:
        """Append one token to each chain from its logits [B, reduced V]."""
        columns = logits.argmax(-1)
        drawn = [row for row, chain in enumerate(chains) if self._is_drawn(chain)]
        if drawn:
            columns[drawn] = _draw([chains[row] for row in drawn], logits[drawn])
        if self.min_confidence > 0:
            _mark_doubtful(chains, logits, columns, self.min_confidence)
        for chain, column in zip(chains, columns.tolist(), strict=True):
            chain.token_ids.append(column if self.vocab is None else self.vocab[column])

    def _is_drawn(self, chain: Chain) -> bool:
        return self.can_draw and not chain.ask.sampling.is_greedy


def _draw(chains: Sequence[Chain], logits: Tensor) -> Tensor:
    """Draw a column for each sampled chain, each with its own random numbers."""
    heats = torch.tensor([chain.ask.sampling.temperature for chain in chains])
    probs = torch.softmax(logits.float() / heats[:, None].to(logits.device), -1)
    coins = [torch.rand(1, generator=chain.ask.generator, dtype=torch.float64) for chain in chains]
    for chain, drawn_from in zip(chains, probs, strict=True):
        chain.probs.append(drawn_from)
    return draw(probs, torch.cat(coins).to(logits.device)).clamp(min=0)


def _mark_doubtful(
    chains: Sequence[Chain], logits: Tensor, columns: Tensor, min_confidence: float
) -> None:
    """End chains of fixed length after a token less probable than asked for."""
    probs = token_probs([chain.ask for chain in chains], logits, columns)
    for chain, prob in zip(chains, probs, strict=True):
        chain.has_ended = chain.ask.outlook is None and prob < min_confidence
