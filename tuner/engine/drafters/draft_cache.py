"""KV of a drafting model, kept in step with the committed tokens of each row.

What was read is compared with what was committed, so rollback and steps without speculation need
no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from tuner.engine.model.decoder import Decoder
from tuner.engine.model.passes import Span, lay_out

_CATCH_UP_TOKENS = 256
"""Prompt tokens the draft reads per row and pass while catching up."""


class Committed(NamedTuple):
    """The committed tokens of one row, in the drafting model's own ids; at least one."""

    slot: int
    token_ids: Sequence[int]


@dataclass(slots=True)
class Read:
    """What the KV of a slot holds: the first `length` committed tokens, then guesses."""

    length: int = 0
    guesses: list[int] = field(default_factory=list)

    def keep_committed(self, token_ids: Sequence[int]) -> int:
        """Count in the guesses that were committed, drop the rest; return the valid length."""
        for guess in self.guesses:
            if self.length >= len(token_ids) or token_ids[self.length] != guess:
                break
            self.length += 1
        self.guesses.clear()
        self.length = min(self.length, len(token_ids) - 1)
        return self.length


class DraftCache:
    """A drafting model over KV slots of its own."""

    def __init__(self, decoder: Decoder, *, num_slots: int, max_context_tokens: int) -> None:
        """Allocate the slots.

        Args:
            decoder: the drafting model.
            num_slots: the target's number of slots.
            max_context_tokens: tokens of a row at most, its guesses among them.
        """
        self._decoder = decoder
        self._slots = decoder.new_slots(num_slots, max_context_tokens)
        self._read = [Read() for _ in range(num_slots)]

    def length(self, slot: int) -> int:
        """Return how many committed tokens the KV holds for a slot."""
        return self._read[slot].length

    def rewind(self, slot: int, length: int) -> None:
        """Forget what was read of a slot beyond a length, guesses among it."""
        read = self._read[slot]
        if length < read.length + len(read.guesses):
            held = read.guesses[: max(0, length - read.length)]
            self._read[slot] = Read(min(read.length, length), held)

    def catch_up(self, rows: Sequence[Committed]) -> Tensor:
        """Read committed tokens not read yet; return logits [B, Vd] after the last of each row."""
        for row in rows:
            self._read[row.slot].keep_committed(row.token_ids)
        while True:
            spans = [self._unread(row) for row in rows]
            is_last = all(
                span.end == len(row.token_ids) for span, row in zip(spans, rows, strict=True)
            )
            hidden = self._forward(spans)
            for span in spans:
                self._read[span.slot].length = span.end
            if is_last:
                return self._decoder.logits(_last_of(spans, hidden))

    def read_guesses(self, guesses: Sequence[tuple[int, int]]) -> Tensor:
        """Read one more guess of each row, (slot, token id); return logits [B, Vd] after it."""
        spans: list[Span] = []
        for slot, token_id in guesses:
            read = self._read[slot]
            start = read.length + len(read.guesses)
            spans.append(Span(slot=slot, start=start, token_ids=[token_id]))
            read.guesses.append(token_id)
        return self._decoder.logits(self._forward(spans))

    def move(self, source: int, target: int) -> None:
        """Carry the KV of one slot over to another."""
        self._slots.move(source, target, self._read[source].length)
        self._read[target] = Read(length=self._read[source].length)
        self._read[source] = Read()

    def release(self, slot: int) -> None:
        """Forget the KV of a slot."""
        self._read[slot] = Read()

    def _unread(self, row: Committed) -> Span:
        """Return the next committed tokens to read; the last one again where all are read."""
        start = min(self._read[row.slot].length, len(row.token_ids) - 1)
        end = min(len(row.token_ids), start + _CATCH_UP_TOKENS)
        return Span(slot=row.slot, start=start, token_ids=row.token_ids[start:end])

    def _forward(self, spans: Sequence[Span]) -> Tensor:
        batch = lay_out(spans, self._decoder.mask_kind)
        return self._decoder.forward(batch, self._slots)


def _last_of(spans: Sequence[Span], hidden: Tensor) -> Tensor:
    """Return the hidden state of each span's last token, [B, H]."""
    if len(spans) == len(hidden):
        return hidden
    ends = torch.tensor([len(span.token_ids) for span in spans], device=hidden.device).cumsum(0)
    return hidden[ends - 1]
