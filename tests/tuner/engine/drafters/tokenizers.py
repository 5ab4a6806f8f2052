"""Tokenizers over the letters a to x, for models that have different ids for the same text."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from tuner.engine.model.codec import HfCodec

LETTERS = "abcdefghijklmnopqrstuvwx"
SYLLABLES = ("ab", "cd", "abcd", "ef", "ce", "gh", "ghi")
_MERGES = [("a", "b"), ("c", "d"), ("ab", "cd"), ("e", "f"), ("c", "e"), ("g", "h"), ("gh", "i")]


def letters(order: str = LETTERS, eos_ids: Sequence[int] = ()) -> HfCodec:
    """One id a letter, in this order."""
    return _codec(BPE(vocab={letter: n for n, letter in enumerate(order)}, merges=[]), eos_ids)


def syllables(eos_ids: Sequence[int] = ()) -> HfCodec:
    """Letters, and ids of their own for some of their combinations."""
    vocab = {piece: n for n, piece in enumerate((*LETTERS, *SYLLABLES))}
    return _codec(BPE(vocab=vocab, merges=_MERGES), eos_ids)


def _codec(model: BPE, eos_ids: Sequence[int]) -> HfCodec:
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.Fuse()
    return HfCodec(PreTrainedTokenizerFast(tokenizer_object=tokenizer), eos_ids)
