"""Policies that are handed the world: the 100 % line, and what perfect knowledge gives without it.

No policy can be better than ``PerRouteOracle``: it tries every combination of arms.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from policy.simulate.engine import ARMS, Choice, Counts, Engine, Turn
from policy.simulate.peers.base import for_each
from policy.simulate.profiles import Drafting
from policy.simulate.worlds import MAX_DEPTH
from policy.statistics import Floats, Ints

_DEPTH = np.array([arm.k for arm in ARMS], dtype=np.intp)
_WAY = Choice.of(list(ARMS), np.ones(len(ARMS), dtype=np.intp)).way


class _Clairvoyant:
    """Chooses the best of a list of combinations, knowing the truth."""

    def __init__(self, engine: Engine, combinations: Ints) -> None:
        self._engine = engine
        self._combinations = combinations
        self._is_model = _WAY[combinations] == Drafting.MODEL
        self._is_off = np.all(_WAY[combinations] == Drafting.OFF, axis=1)
        self._model_depth = np.where(self._is_model, _DEPTH[combinations], 0).max(axis=1)

    def choose(self, turn: Turn) -> Choice:
        """Return the combination with the most tokens per second."""
        best = int(np.argmax(self._worth(turn, *self._yields(turn))))
        return for_each([ARMS[arm] for arm in self._combinations[best]], turn)

    def observe(self, counts: Counts) -> None:
        """Learn nothing: all is known."""

    def _yields(self, turn: Turn) -> tuple[Floats, Floats]:
        """Return the tokens of a step by route, and its seconds; [N, R] and [N]."""
        profile, route = self._engine.profile, np.arange(len(turn.rows))
        tokens = (turn.rows[:, None] * tokens_by_arm(self._engine, turn))[route, self._combinations]
        positions = (turn.rows[:, None] * (1 + _DEPTH))[route, self._combinations].sum(axis=1)
        seconds = profile.step_table_s(turn.num_rows, turn.context_tokens)[positions]
        seconds = seconds * np.where(self._is_off, 1 + profile.off_tax_ratio, 1.0)
        drafting = (turn.rows * self._is_model).sum(axis=1)
        seconds += profile.draft_s(Drafting.MODEL, drafting, self._model_depth)
        return np.asarray(tokens), np.asarray(seconds)

    def _worth(self, turn: Turn, tokens: Floats, seconds: Floats) -> Floats:
        """Return what each combination is worth; [N]."""
        return np.asarray(tokens.sum(axis=1) / seconds)


class PerRouteOracle(_Clairvoyant):
    """The best arm of each route, jointly, by trying all: the 100 % line."""

    name = "oracle"

    def __init__(self, engine: Engine) -> None:
        """Take the world."""
        arms = range(len(ARMS))
        every = list(product(arms, repeat=engine.world.num_routes))
        super().__init__(engine, np.array(every, dtype=np.intp))


class LimitedOracle(PerRouteOracle):
    """The same where tokens count only while their route keeps its limit."""

    name = "oracle_limited"

    def __init__(self, engine: Engine, limits_s: Floats) -> None:
        """Take the world, and the longest time per output token by route; [R]."""
        super().__init__(engine)
        self._limits_s = limits_s

    def _worth(self, turn: Turn, tokens: Floats, seconds: Floats) -> Floats:
        keeps = seconds[:, None] * turn.rows <= self._limits_s * tokens
        return np.asarray((tokens * keeps).sum(axis=1) / seconds)


class OneArmOracle(_Clairvoyant):
    """The best of the arms that all routes must share."""

    name = "oracle_one_arm"

    def __init__(self, engine: Engine) -> None:
        """Take the world."""
        arms = np.arange(len(ARMS), dtype=np.intp)
        super().__init__(engine, np.repeat(arms[:, None], engine.world.num_routes, axis=1))


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
        survival = self._engine.world.survival(turn.window)[:, 1].ravel()
        size = np.repeat(turn.rows, MAX_DEPTH)
        order = np.argsort(-survival, kind="stable")
        gains = np.concatenate(([0.0], np.repeat(survival[order], size[order])))
        table = self._engine.profile.step_table_s(turn.num_rows, turn.context_tokens)
        seconds = table[turn.num_rows : turn.num_rows + len(gains)]
        depth = np.asarray(MAX_DEPTH)
        drafting = float(self._engine.profile.draft_s(self._way, np.asarray(turn.num_rows), depth))
        budget = int(np.argmax((turn.num_rows + np.cumsum(gains)) / (seconds + drafting)))
        taken = np.zeros_like(size)
        before = np.cumsum(size[order]) - size[order]
        taken[order] = np.clip(budget - before, 0, size[order])
        routes = len(turn.rows)
        return Choice(
            way=np.full(routes, self._way, dtype=np.intp),
            depth=np.full(routes, MAX_DEPTH, dtype=np.intp),
            slots=taken.reshape(routes, MAX_DEPTH),
        )

    def observe(self, counts: Counts) -> None:
        """Learn nothing: all is known."""


def tokens_by_arm(engine: Engine, turn: Turn) -> Floats:
    """Return the true tokens of a row's pass by route and arm; [R, A]."""
    gained = np.cumsum(engine.world.survival(turn.window), axis=2)
    reach = np.concatenate([np.zeros((*gained.shape[:2], 1)), gained], axis=2)
    kind = np.where(_WAY == Drafting.LOOKUP, 0, 1)
    return np.asarray(1 + reach[:, kind, _DEPTH])
