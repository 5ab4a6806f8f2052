"""The same text in the ids of two tokenizers, kept up while it grows at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_TAIL_TOKENS = 32
"""Newest tokens that are always translated anew: what follows may change how they are cut."""
_LEAD_TOKENS = 4
"""Tokens decoded before a piece of text, since some tokenizers treat the first one otherwise."""
_PARTIAL = "\ufffd"
"""Stands in decoded text for bytes that are no whole character."""


class Codec(Protocol):
    """A tokenizer.

    Attributes:
        eos_ids: the model's own end tokens.
    """

    eos_ids: tuple[int, ...]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens added."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""


class Translation:
    """One sequence in another tokenizer's ids.

    Attributes:
        token_ids: the translation as of the last call.
    """

    def __init__(self, source: Codec, target: Codec) -> None:
        """Start empty.

        Args:
            source: tokenizer of the sequence that grows.
            target: tokenizer of the translation.
        """
        self.token_ids: list[int] = []
        self._source = source
        self._target = target
        self._num_read = 0
        self._num_settled = 0

    def follow(self, source_ids: Sequence[int]) -> int | None:
        """Bring the translation in step with a sequence that has grown.

        Only what lies behind the last settled place is decoded and encoded again.

        Returns:
            How many ids of the translation before are still its beginning; None where the sequence
            ends within a character, in which case nothing changes.
        """
        text = piece(self._source, source_ids, self._num_read)
        if text.endswith(_PARTIAL):
            return None
        before, settled = self.token_ids, self.token_ids[: self._num_settled]
        tail = self._target.encode(text)
        self.token_ids = [*settled, *tail]
        kept = _common_length(before, self.token_ids, self._num_settled)
        if len(source_ids) - self._num_read > 2 * _TAIL_TOKENS:
            self._settle(source_ids, tail)
        return kept

    def _settle(self, source_ids: Sequence[int], tail: Sequence[int]) -> None:
        """Settle all but the tail, at a place where both tokenizers make a cut.

        Where there is none nearby the tail grows until there is.
        """
        newest = len(source_ids) - _TAIL_TOKENS
        for place in range(newest, newest + _TAIL_TOKENS // 2):
            text = piece(self._source, source_ids[:place], self._num_read)
            head = [] if text.endswith(_PARTIAL) else self._target.encode(text)
            if head and list(tail[: len(head)]) == head:
                self._num_read = place
                self._num_settled += len(head)
                return


def piece(codec: Codec, token_ids: Sequence[int], start: int) -> str:
    """Return the text of the tokens from `start` on, as it reads behind those before."""
    lead = token_ids[max(0, start - _LEAD_TOKENS) : start]
    return codec.decode([*lead, *token_ids[start:]])[len(codec.decode(lead)) :]


def continuation(codec: Codec, token_ids: Sequence[int], text: str) -> list[int]:
    """Return ids of whole characters of a text, as they follow the tokens before it."""
    text = text.rstrip(_PARTIAL)
    lead = codec.decode(token_ids[-_LEAD_TOKENS:])
    before, whole = codec.encode(lead), codec.encode(lead + text)
    if whole[: len(before)] == before:
        return whole[len(before) :]
    return codec.encode(text)


def _common_length(left: Sequence[int], right: Sequence[int], known: int) -> int:
    """Return how many ids two sequences share at their beginning, the first `known` for certain."""
    length, limit = known, min(len(left), len(right))
    while length < limit and left[length] == right[length]:
        length += 1
    return length
