"""Policies that are handed the world: the 100 % line, and what perfect knowledge gives without it.

No policy can be better than ``PerRouteOracle``: it tries every combination of arms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from collectors.records import Setting
from policy.simulate.allotment import Queue
from policy.simulate.engine import ARMS, WAYS, Choice, Counts, Engine, Turn
from policy.simulate.peers.base import for_each
from policy.simulate.profiles import Drafting
from policy.simulate.worlds import MAX_DEPTH
from policy.statistics import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Arms:
    """Arms as arrays; A each. Of an adaptive one the engine decides what is verified."""

    settings: tuple[Setting, ...]
    way: Ints
    depth: Ints
    is_adaptive: Bools

    @classmethod
    def of(cls, settings: Sequence[Setting]) -> _Arms:
        return cls(
            settings=tuple(settings),
            way=np.array([WAYS[arm.method] for arm in settings], dtype=np.intp),
            depth=np.array([arm.k for arm in settings], dtype=np.intp),
            is_adaptive=np.array([arm.is_adaptive for arm in settings]),
        )

    @property
    def verified(self) -> Ints:
        """Positions that every row of an arm has verified."""
        return np.where(self.is_adaptive, 0, self.depth)


class _Clairvoyant:
    """Chooses the best of a list of combinations, knowing the truth."""

    def __init__(self, engine: Engine, arms: Sequence[Setting], combinations: Ints) -> None:
        self._engine = engine
        self._arms = _Arms.of(arms)
        self._combinations = combinations
        way = self._arms.way[combinations]
        self._is_off = np.all(way == Drafting.OFF, axis=1)
        self._uses = {
            drafting: (way == drafting, _deepest(way == drafting, self._arms.depth[combinations]))
            for drafting in (Drafting.MODEL, Drafting.ONE_PASS)
        }
        self._adaptive = list(_by_mask(self._arms.is_adaptive[combinations]))

    def choose(self, turn: Turn) -> Choice:
        """Return the combination with the most tokens per second."""
        best = int(np.argmax(self._worth(turn, *self._yields(turn))))
        return for_each([self._arms.settings[arm] for arm in self._combinations[best]], turn)

    def observe(self, counts: Counts) -> None:
        """Learn nothing: all is known."""

    def _yields(self, turn: Turn) -> tuple[Floats, Floats]:
        """Return the tokens of a step by route, and its seconds; [N, R] and [N]."""
        route = np.arange(len(turn.rows))
        by_arm = turn.rows[:, None] * _tokens_by_arm(self._engine, self._arms, turn)
        tokens = by_arm[route, self._combinations]
        positions = turn.rows[:, None] * (1 + self._arms.verified)
        positions = positions[route, self._combinations].sum(axis=1)
        table = self._engine.profile.step_table_s(turn.num_rows, turn.context_tokens)
        drafting = self._drafting_s(turn)
        for mask, members in self._adaptive:
            queue = _queue(self._engine, turn, mask)
            held = tokens[members].sum(axis=1)
            budget = queue.budgets(table, held, positions[members], drafting[members])
            tokens[members] += _gained(queue, budget, len(route))
            positions[members] += budget
        tax = np.where(self._is_off, 1 + self._engine.profile.off_tax_ratio, 1.0)
        return tokens, table[positions] * tax + drafting

    def _drafting_s(self, turn: Turn) -> Floats:
        """Return the seconds of drafting of each combination; [N]."""
        seconds = np.zeros(len(self._combinations))
        for way, (uses, depth) in self._uses.items():
            if depth.any():
                rows = (turn.rows * uses).sum(axis=1)
                seconds += self._engine.profile.draft_s(way, rows, depth)
        return seconds

    def _worth(self, turn: Turn, tokens: Floats, seconds: Floats) -> Floats:
        """Return what each combination is worth; [N]."""
        return np.asarray(tokens.sum(axis=1) / seconds)


def _deepest(uses: Bools, depth: Ints) -> Ints:
    return np.asarray(np.where(uses, depth, 0).max(axis=1))


def _by_mask(is_adaptive: Bools) -> Iterator[tuple[Bools, Ints]]:
    """Yield each set of adaptive routes that is not empty, and the combinations that have it."""
    masks, number = np.unique(is_adaptive, axis=0, return_inverse=True)
    for index, mask in enumerate(masks):
        if mask.any():
            yield mask, np.flatnonzero(number.ravel() == index)


def _queue(engine: Engine, turn: Turn, is_adaptive: Bools) -> Queue:
    """Return the slots of adaptive routes, all of which draft the longest length."""
    offered = np.tile((turn.rows * is_adaptive)[:, None], MAX_DEPTH)
    return Queue.of(engine.world.survival(turn.window)[:, 1], offered)


def _gained(queue: Queue, budget: Ints, num_routes: int) -> Floats:
    """Return the tokens of the first slots by route; [N, R] for budgets [N]."""
    sizes, number = np.unique(budget, return_inverse=True)
    survival = np.empty(len(queue.order))
    survival[queue.order] = queue.survival
    gains = queue.taken(sizes) * survival
    return np.asarray(gains.reshape(len(sizes), num_routes, -1).sum(axis=2)[number.ravel()])


class PerRouteOracle(_Clairvoyant):
    """The best arm of each route, jointly, by trying all: the 100 % line."""

    name = "oracle"

    def __init__(self, engine: Engine, arms: Sequence[Setting] = ARMS) -> None:
        """Take the world and the arms to combine."""
        every = list(product(range(len(arms)), repeat=engine.world.num_routes))
        super().__init__(engine, arms, np.array(every, dtype=np.intp))


class LimitedOracle(PerRouteOracle):
    """The same where tokens count only while their route keeps its limit."""

    name = "oracle_limited"

    def __init__(self, engine: Engine, limits_s: Floats, arms: Sequence[Setting] = ARMS) -> None:
        """Take the world, the longest time per output token by route [R], and the arms."""
        super().__init__(engine, arms)
        self._limits_s = limits_s

    def _worth(self, turn: Turn, tokens: Floats, seconds: Floats) -> Floats:
        paced_s = seconds[:, None] / self._engine.world.pace.speed(turn.window)
        keeps = paced_s * turn.rows <= self._limits_s * tokens
        return np.asarray((tokens * keeps).sum(axis=1) / seconds)


class OneArmOracle(_Clairvoyant):
    """The best of the arms that all routes must share."""

    name = "oracle_one_arm"

    def __init__(self, engine: Engine, arms: Sequence[Setting] = ARMS) -> None:
        """Take the world and the arms."""
        each = np.arange(len(arms), dtype=np.intp)
        super().__init__(engine, arms, np.repeat(each[:, None], engine.world.num_routes, axis=1))


class PerfectConfidence:
    """vLLM's adaptive verification with true survival in place of confidences.

    All rows draft the longest length; the (row, position) slots most likely to survive are
    verified, as many as give most tokens per second by the true cost table. The method is fixed.

    Source: vLLM documentation, Adaptive Verification (v0.32): slots scored by survival, a global
    budget from a cost model profiled at start-up, drafting of the whole block in every step.
    """

    def __init__(self, engine: Engine, way: Drafting) -> None:
        """Take the world and the way of drafting: ONE_PASS or MODEL."""
        self._engine = engine
        self._way = way
        self.name = "av_one_pass" if way is Drafting.ONE_PASS else "av_autoregressive"

    def choose(self, turn: Turn) -> Choice:
        """Return the slots worth their time."""
        routes = len(turn.rows)
        asked = Choice(
            way=np.full(routes, self._way, dtype=np.intp),
            depth=np.full(routes, MAX_DEPTH, dtype=np.intp),
            slots=np.zeros((routes, MAX_DEPTH), dtype=np.intp),
            is_adaptive=np.ones(routes, dtype=np.bool_),
        )
        return self._engine.allotted(turn, asked)

    def observe(self, counts: Counts) -> None:
        """Learn nothing: all is known."""


def _tokens_by_arm(engine: Engine, arms: _Arms, turn: Turn) -> Floats:
    """Return the true tokens of a row's pass by route and arm, adaptive ones left out; [R, A]."""
    gained = np.cumsum(engine.world.survival(turn.window), axis=2)
    reach = np.concatenate([np.zeros((*gained.shape[:2], 1)), gained], axis=2)
    kind = np.where(arms.way == Drafting.LOOKUP, 0, 1)
    return np.asarray(1 + reach[:, kind, arms.verified])
