"""PARD: a draft model that guesses all positions in one pass, through mask tokens.

It reads the committed tokens not read yet and k - 1 masks: the state of the last committed token
and of each mask gives one token. Distributions of later positions do not know the tokens drawn
for earlier ones; each token is drawn from its own, so the rejection rule stays exact. KV of masks
is scratch, overwritten at the next ask. Source: arXiv:2504.18583.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from collectors.records import MAX_DRAFT_LENGTH, Method
from tuner.engine.drafters.base import Draft, DraftAsk, DrafterBase
from tuner.engine.drafters.tree_growth import Nodes, grow
from tuner.engine.model.decoder import Decoder
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.model.slots import KvSlots

_CATCH_UP_TOKENS = 256
"""Committed tokens read per row and pass."""


class PardDrafter(DrafterBase):
    """Drafts with a decoder of its own over slots of its own."""

    method = Method.PARD
    max_k = MAX_DRAFT_LENGTH

    def __init__(
        self,
        decoder: Decoder,
        *,
        mask_id: int,
        num_slots: int,
        max_context_tokens: int,
        draft_vocab: Tensor | None,
        drafter_id: str,
        drafter_hash: str,
    ) -> None:
        """Take over a decoder.

        Args:
            decoder: the draft model.
            mask_id: the token that stands for one not known yet.
            num_slots: the target's number of slots.
            max_context_tokens: the target's context limit.
            draft_vocab: [reduced V] int64 ids behind the decoder's logits; None for all.
            drafter_id: name of the weights.
            drafter_hash: sha256 over the weights.
        """
        self._decoder = decoder
        self._mask_id = mask_id
        self._slots: KvSlots = decoder.new_slots(num_slots, max_context_tokens)
        self._read = [0] * num_slots
        self._vocab = None if draft_vocab is None else draft_vocab.tolist()
        self.draft_vocab = draft_vocab
        self.max_positions = decoder.shape.max_positions
        self.drafter_id = drafter_id
        self.drafter_hash = drafter_hash

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Guess for all rows in one pass, earlier ones only to read a long prompt."""
        if not asks:
            return []
        while any(self._num_unread(ask) > _CATCH_UP_TOKENS for ask in asks):
            self._read_chunk([ask for ask in asks if self._num_unread(ask) > _CATCH_UP_TOKENS])
        logits = self._read_with_masks(asks)

        def advance(level: int, nodes: Nodes) -> Tensor:
            return logits[:, level]

        return grow(
            asks,
            logits[:, 0],
            advance,
            vocab=self._vocab,
            beams=[1] * len(asks),
            can_draw=True,
            is_by_row=True,
        )

    def move(self, source: int, target: int) -> None:
        """Carry the KV of one slot over to another."""
        self._slots.move(source, target, self._read[source])
        self._read[target], self._read[source] = self._read[source], 0

    def release(self, slot: int) -> None:
        """Forget the KV of a slot."""
        self._read[slot] = 0

    def cached_length(self, slot: int) -> int:
        """Return how many committed tokens the draft's KV holds for a slot."""
        return self._read[slot]

    def _num_unread(self, ask: DraftAsk) -> int:
        return len(ask.token_ids) - self._read[ask.slot]

    def _read_chunk(self, asks: Sequence[DraftAsk]) -> None:
        """Read committed tokens of rows that are far behind."""
        spans: list[Span] = []
        for ask in asks:
            start = self._read[ask.slot]
            token_ids = ask.token_ids[start : start + _CATCH_UP_TOKENS]
            spans.append(Span(slot=ask.slot, start=start, token_ids=token_ids))
            self._read[ask.slot] = spans[-1].end
        self._decoder.forward(lay_out(spans, self._decoder.mask_kind), self._slots)

    def _read_with_masks(self, asks: Sequence[DraftAsk]) -> Tensor:
        """Read what is left of the committed tokens, and masks.

        Returns:
            Logits [B, longest k, reduced V]; a row's columns beyond its k repeat its last one.
        """
        spans: list[Span] = []
        wanted: list[int] = []
        first, depth = 0, max(ask.k for ask in asks)
        for ask in asks:
            start = min(self._read[ask.slot], len(ask.token_ids) - 1)
            token_ids = [*ask.token_ids[start:], *[self._mask_id] * (ask.k - 1)]
            spans.append(Span(slot=ask.slot, start=start, token_ids=token_ids))
            last = first + len(ask.token_ids) - start - 1
            wanted.extend(last + min(position, ask.k - 1) for position in range(depth))
            first += len(token_ids)
            self._read[ask.slot] = len(ask.token_ids)
        states = self._decoder.forward(lay_out(spans, self._decoder.mask_kind), self._slots)
        rows = torch.tensor(wanted, device=states.device)
        return self._decoder.logits(states[rows]).view(len(asks), depth, -1)
