"""Universal draft model: a decoder with another tokenizer guesses by way of the text.

The committed tokens are spelled out and read by the draft in its own ids; what it would say next
is cut into the target's ids. The guess is deterministic, so every rule verifies it exactly.
Source: universal assisted generation in transformers; arXiv:2502.05202, there string-level
exact match.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from collectors.records import MAX_DRAFT_LENGTH, Method
from tuner.engine.drafters.base import NO_DRAFT, Draft, DraftAsk, DrafterBase
from tuner.engine.drafters.chain_growth import Chain, ChainGrowth
from tuner.engine.drafters.draft_cache import Committed, DraftCache
from tuner.engine.drafters.draft_schedule import DraftSchedule, ScheduleKind
from tuner.engine.drafters.translation import Codec, Translation, continuation, piece
from tuner.engine.model.decoder import Decoder

_LONGER_TEXT = 2
"""Draft tokens there may be for one of the target, before a row is no longer drafted."""


class UniversalDrafter(DrafterBase):
    """Drafts with a decoder of another tokenizer over slots of its own."""

    method = Method.DRAFT_MODEL
    max_k = MAX_DRAFT_LENGTH

    def __init__(
        self,
        decoder: Decoder,
        *,
        draft_codec: Codec,
        target_codec: Codec,
        num_slots: int,
        max_context_tokens: int,
        drafter_id: str,
        drafter_hash: str,
        min_confidence: float = 0.0,
        schedule: ScheduleKind = ScheduleKind.CONSTANT,
    ) -> None:
        """Take over a decoder.

        Args:
            decoder: the draft model.
            draft_codec: its tokenizer.
            target_codec: the target's.
            num_slots: the target's number of slots.
            max_context_tokens: the target's context limit.
            drafter_id: name of the weights.
            drafter_hash: sha256 over the weights.
            min_confidence: a token less probable than this is the last of its draft.
            schedule: how draft lengths follow from what was kept.
        """
        longest = _LONGER_TEXT * max_context_tokens + MAX_DRAFT_LENGTH
        self._max_tokens = min(longest, decoder.shape.max_positions)
        self._cache = DraftCache(decoder, num_slots=num_slots, max_context_tokens=self._max_tokens)
        self._draft_codec = draft_codec
        self._target_codec = target_codec
        self._growth = ChainGrowth(can_draw=False, min_confidence=min_confidence)
        self._schedule = DraftSchedule(schedule)
        self._translations: dict[int, Translation] = {}
        self.drafter_id = drafter_id
        self.drafter_hash = drafter_hash

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Guess for all rows; empty where the text ends within a character or is too long."""
        read = [ask for ask in asks if self._can_read(ask)]
        chains = {ask.slot: Chain(ask=ask, length=self._schedule.length(ask)) for ask in read}
        if chains:
            logits = self._cache.catch_up(
                [Committed(ask.slot, self._translations[ask.slot].token_ids) for ask in read]
            )
            self._growth.grow(list(chains.values()), logits, self._read_newest)
        return [self._draft(chains[a.slot]) if a.slot in chains else NO_DRAFT for a in asks]

    def move(self, source: int, target: int) -> None:
        """Carry text and KV of one slot over to another."""
        self._cache.move(source, target)
        self._schedule.move(source, target)
        self._translations.pop(target, None)
        if source in self._translations:
            self._translations[target] = self._translations.pop(source)

    def release(self, slot: int) -> None:
        """Forget text and KV of a slot."""
        self._cache.release(slot)
        self._schedule.release(slot)
        self._translations.pop(slot, None)

    def _can_read(self, ask: DraftAsk) -> bool:
        """Translate what was committed; say whether the draft can read it."""
        translation = self._translations.get(ask.slot)
        if translation is None:
            translation = Translation(self._target_codec, self._draft_codec)
            self._translations[ask.slot] = translation
        num_before = len(translation.token_ids)
        kept = translation.follow(ask.token_ids)
        if kept is None:
            return False
        if kept < num_before:
            self._cache.rewind(ask.slot, kept)
        return 0 < len(translation.token_ids) <= self._max_tokens - ask.k

    def _read_newest(self, chains: Sequence[Chain]) -> Tensor:
        return self._cache.read_guesses([(c.ask.slot, c.token_ids[-1]) for c in chains])

    def _draft(self, chain: Chain) -> Draft:
        """Cut what the draft said into the target's ids; its end stands for the target's."""
        ask, said = chain.ask, chain.token_ids
        ends = [place for place, token in enumerate(said) if token in self._draft_codec.eos_ids]
        said = said[: ends[0]] if ends else said
        known = self._translations[ask.slot].token_ids
        text = piece(self._draft_codec, [*known, *said], len(known))
        token_ids = continuation(self._target_codec, ask.token_ids, text)
        if ends:
            token_ids.extend(self._target_codec.eos_ids[:1])
        token_ids = token_ids[: ask.k]
        self._schedule.note(ask, token_ids)
        return Draft(token_ids=tuple(token_ids))
