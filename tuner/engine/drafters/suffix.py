"""Suffix decoding: what most often followed the longest known end of prompt and output.

Source: SuffixDecoding, arXiv:2411.04975. How long a draft gets follows from how long the match is
and how often each token followed; k only caps it. Past outputs of a route may be kept to look in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from collectors.lookup_suffix import SuffixIndex, SuffixStore
from collectors.records import MAX_DRAFT_LENGTH, Method
from tuner.engine.drafters.base import Draft, DraftAsk, DrafterBase
from tuner.engine.drafters.ending import num_paying


@dataclass(slots=True, kw_only=True)
class _Sequence:
    """One row: its index, whose route it is, and where its output began when it was first asked."""

    route: str
    first_output: int
    index: SuffixIndex = field(default_factory=SuffixIndex)


class SuffixDrafter(DrafterBase):
    """Drafts by the frequencies of what followed before; deterministic, without weights."""

    method = Method.SUFFIX
    max_k = MAX_DRAFT_LENGTH

    def __init__(self, store: SuffixStore | None = None) -> None:
        """Start without past outputs.

        Args:
            store: where outputs of ended rows go and are looked for; None keeps none.
        """
        self._store = store
        self._sequences: dict[int, _Sequence] = {}

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Guess for all rows; empty where the last token never occurred before."""
        return [self._draft(ask) for ask in asks]

    def move(self, source: int, target: int) -> None:
        """Carry the index of one slot over to another."""
        self.release(target)
        if source in self._sequences:
            self._sequences[target] = self._sequences.pop(source)

    def release(self, slot: int) -> None:
        """Forget the index of a slot; its output goes to the store, if its route may be kept."""
        ended = self._sequences.pop(slot, None)
        if ended is not None and self._store is not None and ended.route:
            self._store.add(ended.route, ended.index.token_ids[ended.first_output :])

    def _draft(self, ask: DraftAsk) -> Draft:
        sequence = self._sequences.get(ask.slot)
        if sequence is None:
            sequence = _Sequence(route=ask.route, first_output=len(ask.token_ids) - 1)
            self._sequences[ask.slot] = sequence
        index = sequence.index
        index.extend(ask.token_ids[len(index) :])
        others = () if self._store is None else self._store.texts(ask.route)
        guess = index.guess(ask.k, others)
        return Draft(token_ids=tuple(guess.token_ids[: num_paying(ask, guess.chances)]))
