"""Suffix index over token ids: what most often followed the longest known end of a sequence.

Used by the engine's suffix drafter and by the counterfactual scorer; no torch. Occurrences are
chained from the newest back, as deflate chains its matches: a committed token costs a constant
number of writes, however long the sequence is.

Source: SuffixDecoding, arXiv:2411.04975; the chains are those of RFC 1951, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from collectors.records.parsing import require
from collectors.records.setting import MAX_DRAFT_LENGTH

END = -1
"""Stands between texts that do not continue one another; no draft goes beyond it."""

_ANCHORS = (3, 1)
"""Lengths by which occurrences are chained: the longer one where it ever occurred before."""
_MAX_OCCURRENCES = 32
"""Newest occurrences that vote on what follows."""
_MAX_MATCH = 32
"""Tokens of a match that are compared; longer ones count as this long."""

SPREAD = 4.0
LEAST_PROB = 0.1
"""Measured on 384 answers of the bundled model (32,401 tokens) at k = 8: 1.582 tokens a pass at
spread 4, 1.556 at 2, 1.506 at 1. Prompt lookup (1 to 3 tokens) gets 1.573 but drafts 3.8 tokens a
pass for it instead of 2.6. Least probabilities from 0.05 to 0.2 change it by 0.004 at most."""


class Guess(NamedTuple):
    """A continuation and what it is worth.

    Attributes:
        score: tokens of it that are expected to be right.
        token_ids: the continuation.
        chances: of each token, that it follows the ones before it.
    """

    score: float
    token_ids: list[int]
    chances: list[float]

    def cut(self, k: int) -> Guess:
        """Return its first k tokens."""
        return self._replace(token_ids=self.token_ids[:k], chances=self.chances[:k])


class SuffixText:
    """Text in which the end of a sequence is looked for."""

    __slots__ = ("_earlier", "_ids", "_newest")

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._newest: tuple[dict[tuple[int, ...], int], ...] = tuple({} for _ in _ANCHORS)
        self._earlier: tuple[list[int], ...] = tuple([] for _ in _ANCHORS)

    def __len__(self) -> int:
        """Count the tokens."""
        return len(self._ids)

    @property
    def token_ids(self) -> Sequence[int]:
        """The text; not to be changed."""
        return self._ids

    def extend(self, ids: Sequence[int]) -> None:
        """Add tokens, in order; an anchor cut short by the text's beginning is never asked for."""
        known = self._ids
        for token in ids:
            end = len(known)
            for n, newest, earlier in zip(_ANCHORS, self._newest, self._earlier, strict=True):
                anchor = tuple(known[max(0, end - n) :])
                earlier.append(newest.get(anchor, -1))
                newest[anchor] = end
            known.append(token)

    def guess(self, context: Sequence[int], spread: float, least_prob: float) -> Guess:
        """Return the best continuation of a context, by the occurrences of its end.

        Args:
            context: committed tokens, this text or another; the last `_MAX_MATCH` are looked at.
            spread: draft tokens per matched token.
            least_prob: a token whose path is less probable is not drafted.
        """
        matches = self._matches(context)
        best = Guess(0.0, [], [])
        for length in sorted({length for length, _ in matches}, reverse=True):
            limit = min(MAX_DRAFT_LENGTH, int(spread * length))
            if limit <= best.score:
                break
            starts = [start for matched, start in matches if matched >= length]
            best = max(best, self._follow(starts, limit, least_prob), key=lambda guess: guess.score)
        return best

    def _matches(self, context: Sequence[int]) -> list[tuple[int, int]]:
        """Return (matched tokens, where the text goes on) of the newest occurrences."""
        for n, newest, earlier in zip(_ANCHORS, self._newest, self._earlier, strict=True):
            if len(context) < n:
                continue
            start = newest.get(tuple(context[len(context) - n :]), -1)
            matches: list[tuple[int, int]] = []
            while start >= 0 and len(matches) < _MAX_OCCURRENCES:
                matches.append((self._matched(start, context, n), start))
                start = earlier[start]
            if matches:
                return matches
        return []

    def _matched(self, start: int, context: Sequence[int], known: int) -> int:
        """Return how many tokens before `start` equal the end of the context."""
        ids, end = self._ids, len(context)
        limit = min(_MAX_MATCH, start, end)
        length = known
        while length < limit and ids[start - 1 - length] == context[end - 1 - length]:
            length += 1
        return length

    def _follow(self, starts: list[int], limit: int, least_prob: float) -> Guess:
        """Let occurrences vote token by token; those outvoted have no say in the next one.

        An occurrence that runs into the end of the text goes on in the guess itself, as a loop.
        """
        ids = self._ids
        token_ids: list[int] = []
        chances: list[float] = []
        prob, score = 1.0, 0.0
        while len(token_ids) < limit:
            votes: dict[int, list[int]] = {}
            for start in starts:
                place = start + len(token_ids)
                token = ids[place] if place < len(ids) else token_ids[place - len(ids)]
                votes.setdefault(token, []).append(start)
            token, chosen = max(votes.items(), key=lambda vote: len(vote[1]))
            chance = len(chosen) / len(starts)
            prob *= chance
            if token == END or prob < least_prob:
                break
            token_ids.append(token)
            chances.append(chance)
            score += prob
            starts = chosen
        return Guess(score, token_ids, chances)


class SuffixIndex:
    """Finds the best continuation of one sequence in itself and in other texts."""

    __slots__ = ("_least_prob", "_own", "_spread")

    def __init__(self, spread: float = SPREAD, least_prob: float = LEAST_PROB) -> None:
        """Make an empty index.

        Args:
            spread: draft tokens per matched token.
            least_prob: a token whose path is less probable is not drafted.

        Raises:
            InvalidRecord: the spread is not positive, or `least_prob` is no probability.
        """
        require(
            spread > 0 and 0 <= least_prob <= 1,
            f"suffix needs spread > 0 and least_prob of 0 to 1, got {spread} and {least_prob}",
        )
        self._spread = spread
        self._least_prob = least_prob
        self._own = SuffixText()

    def __len__(self) -> int:
        """Count the committed tokens."""
        return len(self._own)

    @property
    def token_ids(self) -> Sequence[int]:
        """The committed tokens; not to be changed."""
        return self._own.token_ids

    def extend(self, ids: Sequence[int]) -> None:
        """Add committed tokens, in order."""
        self._own.extend(ids)

    def propose(self, k: int, others: Sequence[SuffixText] = ()) -> list[int]:
        """Return the tokens of `guess`."""
        return self.guess(k, others).token_ids

    def guess(self, k: int, others: Sequence[SuffixText] = ()) -> Guess:
        """Return up to k tokens of the continuation with the best score; none without a match.

        A smaller k only cuts the draft, so that drafts of all lengths can be scored at once.

        Args:
            k: most tokens wanted.
            others: texts to look in besides the sequence itself.
        """
        context = self._own.token_ids
        guesses = [
            text.guess(context, self._spread, self._least_prob) for text in (self._own, *others)
        ]
        return max(guesses, key=lambda guess: guess.score).cut(max(0, k))


class SuffixStore:
    """Past outputs by route, the older half dropped at once when a route's store is full."""

    __slots__ = ("_half_tokens", "_texts")

    def __init__(self, max_tokens: int) -> None:
        """Make an empty store.

        Args:
            max_tokens: tokens kept of each route at most, the marks between outputs among them.

        Raises:
            InvalidRecord: there is no room for two outputs of one token.
        """
        require(max_tokens >= 4, f"a store of outputs needs room for 4 tokens, got {max_tokens}")
        self._half_tokens = max_tokens // 2
        self._texts: dict[str, list[SuffixText]] = {}

    def add(self, route: str, output_ids: Sequence[int]) -> None:
        """Keep an output; of one that is longer than half the store, its end."""
        if not output_ids:
            return
        kept = [*output_ids[1 - self._half_tokens :], END]
        texts = self._texts.setdefault(route, [SuffixText()])
        if len(texts[0]) + len(kept) > self._half_tokens:
            texts[:] = [SuffixText(), texts[0]]
        texts[0].extend(kept)

    def texts(self, route: str) -> Sequence[SuffixText]:
        """Return what is kept of a route, the newer half first."""
        return self._texts.get(route, ())
