"""Answers held to a grammar: a JSON schema, a regular expression, a choice, a context-free grammar.

llguidance knows which tokens may come next; this module alone speaks to it. The server compiles,
outside the engine's thread; each row then has a state of its own that goes along with its tokens.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

from tuner.engine.errors import InvalidRequest

MAX_GRAMMAR_CHARS = 64 * 2**10
"""Longest grammar compiled. Deeper nesting than fits into it could overflow `_STACK_BYTES`."""

_STACK_BYTES = 256 * 2**20
"""Room of the compiling thread. The library recurses once a nested rule, at 10 kB each: on a usual
thread of 8 MB, 1,200 chained references of 78 kB ended the process. Untouched pages cost nothing.
"""

_MAX_CACHED = 64
_WHITESPACE = r"[\x20\x0A\x0D\x09]{1,32}"
"""Most white space between two JSON tokens; without a bound, small models never leave it."""

Mask = NDArray[np.bool_]


class GrammarKind(StrEnum):
    """What a grammar is written in."""

    JSON = "json"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarSource:
    """A grammar as a client wrote it.

    Attributes:
        kind: what it is written in.
        text: a JSON schema that is an object, a regular expression, a JSON list of strings, or a
            grammar in Lark's form.
    """

    kind: GrammarKind
    text: str

    def to_dict(self) -> dict[str, object]:
        """Return the form of vLLM's ``structured_outputs``."""
        is_json = self.kind in (GrammarKind.JSON, GrammarKind.CHOICE)
        return {self.kind.value: json.loads(self.text) if is_json else self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """A compiled grammar, shared by all rows that use it.

    Attributes:
        source: what it was compiled from.
        vocab_size: V.
    """

    source: GrammarSource
    vocab_size: int
    _matcher: LLMatcher = field(repr=False, compare=False)

    def start(self) -> GrammarState:
        """Return the state of an answer that has no token yet."""
        return GrammarState(self._matcher, self.vocab_size)


class GrammarState:
    """Where one answer stands in its grammar."""

    def __init__(self, origin: LLMatcher, vocab_size: int) -> None:
        self._origin = origin
        self._matcher = origin.deep_copy()
        self._taken: list[int] = []
        self._refused = False
        self._vocab_size = vocab_size

    @property
    def is_over(self) -> bool:
        """True where the answer is complete and nothing may follow."""
        return self._matcher.is_stopped() and not self.fault

    @property
    def fault(self) -> str:
        """Why the grammar cannot go on, in one line; empty where it can."""
        if self._refused:
            return "no token of this model spells what must come next"
        return _line(self._matcher.get_error())

    def take(self, token_id: int) -> None:
        """Take a token that was delivered; one that the grammar forbids leaves a `fault`.

        That can only be where the vocabulary lacks a letter which the grammar demands: the library
        counts on one that spells every byte.
        """
        self._refused = not self.advance(token_id)

    def advance(self, token_id: int) -> bool:
        """Take one token; return False, without a change, where the grammar forbids it.

        A token that the library cannot follow for one of its limits is taken and leaves a `fault`.
        """
        if not self._matcher.try_consume_tokens([token_id]) and not self.fault:
            return False
        self._taken.append(token_id)
        return True

    def back(self) -> None:
        """Take the last token back, and the fault with it where it led there."""
        self._taken.pop()
        if self.fault:
            self._matcher = self._origin.deep_copy()
            self._matcher.consume_tokens(self._taken)
        else:
            self._matcher.rollback(1)

    def allowed(self) -> Mask:
        """Return which tokens may come next, [V]; end tokens among them where the answer may end.

        No token may where there is a `fault`.
        """
        if not self.fault:
            bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
            # Some dead ends are found only here.
            if not self.fault:
                return np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(np.bool_)
        return np.zeros(self._vocab_size, dtype=np.bool_)

    def visit(self, token_ids: Sequence[int], parents: Sequence[int] | None) -> Iterator[int]:
        """Walk over the tokens of a draft that the grammar allows, standing behind each in turn.

        At the end the state is where it was.

        Args:
            token_ids: drafted tokens.
            parents: as in `Draft.parents`; None for a chain.

        Yields:
            -1 for the last committed token, then the index of each allowed token whose ancestors
            all are.
        """
        children: list[list[int]] = [[] for _ in range(len(token_ids) + 1)]
        for node, parent in enumerate(
            range(-1, len(token_ids) - 1) if parents is None else parents
        ):
            children[parent + 1].append(node)
        return self._visit(-1, token_ids, children)

    def _visit(
        self, node: int, token_ids: Sequence[int], children: Sequence[Sequence[int]]
    ) -> Iterator[int]:
        yield node
        for child in children[node + 1]:
            if self.advance(token_ids[child]):
                yield from self._visit(child, token_ids, children)
                self.back()


class GrammarCompiler:
    """Turns sources into grammars for one model, in a thread of its own; the latest are kept."""

    def __init__(self, tokenizer_json: str, *, eos_ids: Sequence[int], vocab_size: int) -> None:
        """Start the thread; the vocabulary is read with the first grammar.

        Args:
            tokenizer_json: the tokenizer in the form of Hugging Face's tokenizers.
            eos_ids: tokens that end an answer.
            vocab_size: V of the model, which may be above the tokenizer's.
        """
        self._tokenizer_json = tokenizer_json
        self._eos_ids = list(eos_ids)
        self._vocab_size = vocab_size
        self._tokenizer: LLTokenizer | None = None
        self._known: OrderedDict[GrammarSource, Grammar] = OrderedDict()
        self._worker = _deep_worker()

    def compile(self, source: GrammarSource, *, param: str) -> Future[Grammar]:
        """Compile a grammar.

        Args:
            source: the grammar.
            param: the request parameter that holds it.

        Returns:
            The grammar, or InvalidRequest: it is malformed, too long, of a kind the library does
            not know, allows no token, or the model's tokenizer is none that it can read.
        """
        return self._worker.submit(self._compile, source, param)

    def _compile(self, source: GrammarSource, param: str) -> Grammar:
        known = self._known.get(source)
        if known is None:
            known = self._known[source] = self._new(source, param)
            if len(self._known) > _MAX_CACHED:
                self._known.popitem(last=False)
        self._known.move_to_end(source)
        return known

    def _new(self, source: GrammarSource, param: str) -> Grammar:
        if len(source.text) > MAX_GRAMMAR_CHARS:
            raise InvalidRequest(
                f"{param} has {len(source.text)} characters; {MAX_GRAMMAR_CHARS} is the most",
                param=param,
            )
        text = _LIBRARY_FORMS[source.kind](source.text)
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(self._vocabulary(param), text, log_level=0, limits=limits)
        if matcher.is_error():
            raise InvalidRequest(f"{param}: {_line(matcher.get_error())}", param=param)
        grammar = Grammar(source=source, vocab_size=self._vocab_size, _matcher=matcher)
        first = grammar.start().allowed()
        first[self._eos_ids] = False
        if not first.any():
            raise InvalidRequest(f"{param} allows no text; allow at least one token", param=param)
        return grammar

    def _vocabulary(self, param: str) -> LLTokenizer:
        if self._tokenizer is None:
            try:
                self._tokenizer = LLTokenizer(
                    self._tokenizer_json, n_vocab=self._vocab_size, eos_token=self._eos_ids
                )
            except ValueError as error:
                reason = _line(str(error))
                raise InvalidRequest(
                    f"{param}: this model's tokenizer supports no grammar: {reason}", param=param
                ) from error
        return self._tokenizer


def _deep_worker() -> ThreadPoolExecutor:
    """Return one running thread with room for deep recursion."""
    usual = threading.stack_size(_STACK_BYTES)
    try:
        worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")
        worker.submit(int).result()
    finally:
        threading.stack_size(usual)
    return worker


def _of_schema(text: str) -> str:
    return LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_pattern": _WHITESPACE})


def _of_choices(text: str) -> str:
    choices: list[str] = json.loads(text)
    alternatives = (json.dumps(choice, ensure_ascii=False) for choice in choices)
    return LLMatcher.grammar_from_lark(f"start: {' | '.join(alternatives)}")


_LIBRARY_FORMS: dict[GrammarKind, Callable[[str], str]] = {
    GrammarKind.JSON: _of_schema,
    GrammarKind.REGEX: LLMatcher.grammar_from_regex,
    GrammarKind.CHOICE: _of_choices,
    GrammarKind.GRAMMAR: LLMatcher.grammar_from_lark,
}


def _line(message: str) -> str:
    return " ".join(message.split())
