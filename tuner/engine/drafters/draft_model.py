"""Draft model: a smaller decoder with the target's tokenizer guesses token by token.

Source: arXiv:2211.17192, arXiv:2302.01318. Rows are drafted together, each to its own length.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from collectors.records import MAX_DRAFT_LENGTH, Method
from tuner.engine.drafters.base import Draft, DraftAsk, DrafterBase
from tuner.engine.drafters.chain_growth import Chain, ChainGrowth
from tuner.engine.drafters.draft_cache import Committed, DraftCache
from tuner.engine.drafters.draft_schedule import DraftSchedule, ScheduleKind
from tuner.engine.model.decoder import Decoder


class DraftModelDrafter(DrafterBase):
    """Drafts with a decoder of its own over slots of its own."""

    method = Method.DRAFT_MODEL
    max_k = MAX_DRAFT_LENGTH

    def __init__(
        self,
        decoder: Decoder,
        *,
        num_slots: int,
        max_context_tokens: int,
        draft_vocab: Tensor | None,
        drafter_id: str,
        drafter_hash: str,
        min_confidence: float = 0.0,
        schedule: ScheduleKind = ScheduleKind.CONSTANT,
    ) -> None:
        """Take over a decoder.

        Args:
            decoder: the draft model.
            num_slots: the target's number of slots.
            max_context_tokens: the target's context limit.
            draft_vocab: [reduced V] int64 ids behind the decoder's logits; None for all.
            drafter_id: name of the weights.
            drafter_hash: sha256 over the weights.
            min_confidence: a token less probable than this is the last of its draft.
            schedule: how draft lengths follow from what was kept.
        """
        self._cache = DraftCache(
            decoder, num_slots=num_slots, max_context_tokens=max_context_tokens
        )
        self._growth = ChainGrowth(
            vocab=None if draft_vocab is None else draft_vocab.tolist(),
            min_confidence=min_confidence,
        )
        self._schedule = DraftSchedule(schedule)
        self.draft_vocab = draft_vocab
        self.max_positions = decoder.shape.max_positions
        self.drafter_id = drafter_id
        self.drafter_hash = drafter_hash

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Guess for all rows, one pass per draft position; greedy rows take the likeliest token."""
        if not asks:
            return []
        chains = [Chain(ask=ask, length=self._schedule.length(ask)) for ask in asks]
        logits = self._cache.catch_up([Committed(ask.slot, ask.token_ids) for ask in asks])
        self._growth.grow(chains, logits, self._read_newest)
        for chain in chains:
            self._schedule.note(chain.ask, chain.token_ids)
        return [chain.draft() for chain in chains]

    def move(self, source: int, target: int) -> None:
        """Carry the KV of one slot over to another."""
        self._cache.move(source, target)
        self._schedule.move(source, target)

    def release(self, slot: int) -> None:
        """Forget the KV of a slot."""
        self._cache.release(slot)
        self._schedule.release(slot)

    def cached_length(self, slot: int) -> int:
        """Return how many committed tokens the draft's KV holds for a slot."""
        return self._cache.length(slot)

    def _read_newest(self, chains: Sequence[Chain]) -> Tensor:
        return self._cache.read_guesses([(c.ask.slot, c.token_ids[-1]) for c in chains])
