"""Prompt lookup: the tokens that followed the latest occurrence of the current n-gram.

Source: prompt lookup decoding (Saxena, 2023), as vLLM's ``ngram`` and transformers, which copies
from the earliest one.
"""

from __future__ import annotations

from collections.abc import Sequence

from collectors.lookup import LookupIndex, Match
from collectors.records import MAX_DRAFT_LENGTH, Method
from tuner.engine.drafters.base import Draft, DraftAsk, DrafterBase


class PromptLookupDrafter(DrafterBase):
    """Drafts by copying from prompt and output; deterministic, without weights."""

    method = Method.PROMPT_LOOKUP
    max_k = MAX_DRAFT_LENGTH

    def __init__(self, match: Match = Match.LATEST) -> None:
        """Start without text.

        Args:
            match: which occurrence of an n-gram is copied from.
        """
        self._match = match
        self._indexes: dict[int, tuple[tuple[int, int], LookupIndex]] = {}

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Guess for all rows; empty where the current n-gram never occurred before."""
        return [self._draft(ask) for ask in asks]

    def move(self, source: int, target: int) -> None:
        """Carry the index of one slot over to another."""
        self.release(target)
        if source in self._indexes:
            self._indexes[target] = self._indexes.pop(source)

    def release(self, slot: int) -> None:
        """Forget the index of a slot."""
        self._indexes.pop(slot, None)

    def _draft(self, ask: DraftAsk) -> Draft:
        index = self._index_of(ask)
        index.extend(ask.token_ids[len(index) :])
        return Draft(token_ids=tuple(index.propose(ask.k)))

    def _index_of(self, ask: DraftAsk) -> LookupIndex:
        """Return the slot's index, made anew where the Setting asks for another window."""
        window = (ask.setting.lookup_min, ask.setting.lookup_max)
        known = self._indexes.get(ask.slot)
        if known is not None and known[0] == window:
            return known[1]
        index = LookupIndex(*window, self._match)
        self._indexes[ask.slot] = (window, index)
        return index
