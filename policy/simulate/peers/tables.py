"""Policies on a profiled cost: the batch-size table, and goodput by a moving average."""

from __future__ import annotations

import numpy as np

from collectors.records import LOAD_LEVELS, LoadLevel, Setting, load_level_of
from policy.simulate.engine import ARMS, Choice, Counts, Engine, Turn, model
from policy.simulate.peers.base import for_all
from policy.simulate.worlds import MAX_DEPTH
from policy.statistics import Floats, Ints

TUNED_SHARE = 0.15
_SWEPT_WINDOWS = 24
_LARGEST_SWEPT = 128


class BatchSizeTable:
    """A length by batch size, tuned by a sweep over the first part of the run.

    As kind as can be: the sweep is free, free of noise, and over methods too.

    Source: vLLM's num_speculative_tokens_per_batch_size, inclusive ranges of the batch size.
    """

    name = "batch_size_table"

    def __init__(self, engine: Engine) -> None:
        """Sweep all arms at each range on windows of the first part."""
        self._table = {level: self._best(engine, level) for level in LOAD_LEVELS}

    def choose(self, turn: Turn) -> Choice:
        """Look the batch size up."""
        return for_all(self._table[load_level_of(turn.num_rows)], turn)

    def observe(self, counts: Counts) -> None:
        """Learn nothing: the table is tuned."""

    def _best(self, engine: Engine, level: LoadLevel) -> Setting:
        last = max(1, int(TUNED_SHARE * engine.world.num_windows)) - 1
        size = (level.low + min(level.high, _LARGEST_SWEPT)) // 2
        goodputs = np.zeros(len(ARMS))
        for window in np.unique(np.linspace(0, last, _SWEPT_WINDOWS).astype(int)):
            seen = engine.turn(int(window))
            turn = Turn(window=seen.window, rows=_resized(seen.rows, size), context_tokens=0.0)
            goodputs += [engine.goodput(turn, for_all(arm, turn)) for arm in ARMS]
        return ARMS[int(np.argmax(goodputs))]


def _resized(rows: Ints, size: int) -> Ints:
    """Scale rows to a batch size."""
    exact = rows * size / max(1, rows.sum())
    whole = np.floor(exact).astype(np.intp)
    whole[np.argsort(-(exact - whole), kind="stable")[: size - whole.sum()]] += 1
    return np.asarray(whole)


class GoodputAverage:
    """One length for all, by acceptance averaged over all routes and a profiled cost.

    Source: arXiv:2406.14066 (SmartSpec): goodput is predicted tokens over predicted step time,
    tokens from a moving average of acceptance; here by position, and with the true cost table.
    """

    name = "goodput_average"

    _ALPHA = 0.2
    _FIRST = 0.7

    def __init__(self, engine: Engine) -> None:
        """Take the cost table, not the truth about acceptance."""
        self._engine = engine
        self._chances: Floats = np.full(MAX_DEPTH, self._FIRST)

    def choose(self, turn: Turn) -> Choice:
        """Return the length with the highest predicted goodput."""
        tokens = np.concatenate(([1.0], 1 + np.cumsum(np.cumprod(self._chances))))
        choices = [for_all(model(k), turn) for k in range(MAX_DEPTH + 1)]
        seconds = [_seconds(self._engine, turn, choice) for choice in choices]
        return choices[int(np.argmax(tokens / np.array(seconds)))]

    def observe(self, counts: Counts) -> None:
        """Average the acceptance of each position; positions not drafted follow the last one."""
        attempts, accepts = counts.attempts.sum(axis=0), counts.accepts.sum(axis=0)
        seen = int(np.count_nonzero(attempts))
        if seen:
            rates = accepts[:seen] / attempts[:seen]
            self._chances[:seen] += self._ALPHA * (rates - self._chances[:seen])
            self._chances[seen:] = self._chances[seen - 1]


class Cascade:
    """Test lengths, set the best, test again; off while speculation has no utility.

    Utility is tokens gained over time lost, against a plain step of the same batch. Lengths are
    climbed while utility rises. A set phase lasts 16 windows after tests of one window; where off
    was best, it doubles up to 128. The lengths of phases are ours, the abstract gives none.

    Source: arXiv:2506.20675, abstract.
    """

    name = "cascade"

    _LENGTHS = (1, 2, 3, 5, 7)
    _FIRST = 2
    _SET_WINDOWS, _MOST_WINDOWS = 16, 128

    def __init__(self, engine: Engine) -> None:
        """Take the cost table for the time of a plain step."""
        self._engine = engine
        self._utility: dict[int, float] = {}
        self._trying: int | None = self._FIRST
        self._set, self._left, self._pause = 0, 0, self._SET_WINDOWS

    def choose(self, turn: Turn) -> Choice:
        """Return the length under test, or the one set."""
        return for_all(model(self._set if self._trying is None else self._length()), turn)

    def observe(self, counts: Counts) -> None:
        """Measure a test, or count a set window down."""
        if self._trying is None:
            self._left -= 1
            if self._left <= 0:
                self._utility, self._trying = {}, self._FIRST
            return
        plain = _seconds(self._engine, counts.turn, for_all(model(0), counts.turn))
        gained = float(counts.tokens.sum()) / (counts.turn.num_rows * counts.steps)
        self._utility[self._trying] = (
            gained * plain / (counts.step_s + counts.lost_s / counts.steps)
        )
        self._trying = self._next()
        if self._trying is None:
            self._settle()

    def _length(self) -> int:
        assert self._trying is not None
        return self._LENGTHS[self._trying]

    def _next(self) -> int | None:
        """Climb up from the first length, else down from it; None when done."""
        best = max(self._utility, key=lambda place: self._utility[place])
        for place in (best + 1, best - 1):
            if 0 <= place < len(self._LENGTHS) and place not in self._utility:
                return place
        return None

    def _settle(self) -> None:
        best = max(self._utility, key=lambda place: self._utility[place])
        pays = self._utility[best] > 1
        self._set = self._LENGTHS[best] if pays else 0
        self._pause = self._SET_WINDOWS if pays else min(self._MOST_WINDOWS, 2 * self._pause)
        self._left = self._pause


def _seconds(engine: Engine, turn: Turn, choice: Choice) -> float:
    target, drafts = engine.seconds(turn, choice)
    return target + float(drafts.sum())
