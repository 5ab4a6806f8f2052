"""Grammars over small vocabularies: the letters of the harness, or a tokenizer's."""

from __future__ import annotations

import json
from functools import cache

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from tuner.engine.grammar import Grammar, GrammarCompiler, GrammarKind, GrammarSource

NUM_LETTERS = 23
END = NUM_LETTERS
"""Token t is the t-th letter; the one after the last ends an answer."""


@cache
def letter_compiler(vocab_size: int = NUM_LETTERS + 1) -> GrammarCompiler:
    vocab = {chr(ord("a") + place): place for place in range(NUM_LETTERS)} | {"<end>": END}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    return GrammarCompiler(tokenizer.to_str(), eos_ids=(END,), vocab_size=vocab_size)


@cache
def byte_compiler() -> GrammarCompiler:
    """Every byte is a token, and one more ends an answer."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: place for place, letter in enumerate(alphabet)} | {"<end>": len(alphabet)}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    end = len(alphabet)
    return GrammarCompiler(tokenizer.to_str(), eos_ids=(end,), vocab_size=end + 1)


def regex(pattern: str) -> GrammarSource:
    return GrammarSource(kind=GrammarKind.REGEX, text=pattern)


def schema(body: object) -> GrammarSource:
    return GrammarSource(kind=GrammarKind.JSON, text=json.dumps(body, separators=(",", ":")))


def compiled(source: GrammarSource, compiler: GrammarCompiler | None = None) -> Grammar:
    return (compiler or letter_compiler()).compile(source, param="structured_outputs").result()


def letters(text: str) -> list[int]:
    return [ord(letter) - ord("a") for letter in text]


def spelled(token_ids: list[int]) -> str:
    return "".join(chr(ord("a") + token) for token in token_ids)
