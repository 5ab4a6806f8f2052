"""Bandits: each load level, or each route at each load level, learns its arms by trying them.

The reward is goodput over that of plain rows at the speed of one, so that it does not grow with
the batch; the bonus is in units of the best reward seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from collectors.records import LoadLevel, Setting, load_level_of
from policy.simulate.engine import ARMS, Choice, Counts, Turn
from policy.simulate.peers.base import for_all, for_each
from policy.simulate.profiles import UNIT_S

EXPLORATION = 0.2
"""Width of the bonus. 1 would be the textbook's; here it tries all arms for most of the run, and
bandits of this kind do better with less."""

DISCOUNT = 0.99
EPSILON = 0.1
REMEMBERED = 20


class Learner(Protocol):
    """Learns which arm pays in one place."""

    def pull(self) -> int:
        """Return the arm to try."""

    def learn(self, arm: int, reward: float) -> None:
        """Take in what an arm gave."""


class Ucb:
    """Upper confidence bounds, discounted or not.

    Source: UCB1 (Auer et al. 2002); its discounted form (Garivier and Moulines, arXiv:0805.3415);
    arXiv:2505.15141 (BanditSpec) for draft lengths as arms.
    """

    def __init__(self, discount: float = 1.0, num_arms: int = len(ARMS)) -> None:
        """Know nothing; a discount below 1 forgets."""
        self._discount = discount
        self._pulls = np.zeros(num_arms)
        self._rewards = np.zeros(num_arms)
        self._best = 0.0

    def pull(self) -> int:
        """Return the arm with the highest bound, each one once at first."""
        if np.any(self._pulls == 0):
            return int(np.argmax(self._pulls == 0))
        total = max(np.e, float(self._pulls.sum()))
        bonus = EXPLORATION * self._best * np.sqrt(2 * np.log(total) / self._pulls)
        return int(np.argmax(self._rewards / self._pulls + bonus))

    def learn(self, arm: int, reward: float) -> None:
        """Count a reward."""
        self._pulls *= self._discount
        self._rewards *= self._discount
        self._pulls[arm] += 1
        self._rewards[arm] += reward
        self._best = max(self._best, reward)


class EpsilonGreedy:
    """The best median of the last rewards, and a tenth of the windows at random.

    Source: the bucketed epsilon-greedy selectors of adaptive drafting (arXiv:2512.22420 compares
    them), with epsilon 0.1 and the last 20 rewards of each arm.
    """

    def __init__(self, generator: np.random.Generator, num_arms: int = len(ARMS)) -> None:
        """Know nothing."""
        self._generator = generator
        self._rewards = [deque[float](maxlen=REMEMBERED) for _ in range(num_arms)]

    def pull(self) -> int:
        """Return an arm not yet tried, a random one, or the best."""
        untried = [arm for arm, rewards in enumerate(self._rewards) if not rewards]
        if untried:
            return untried[0]
        if self._generator.random() < EPSILON:
            return int(self._generator.integers(len(ARMS)))
        return int(np.argmax([np.median(rewards) for rewards in self._rewards]))

    def learn(self, arm: int, reward: float) -> None:
        """Remember a reward."""
        self._rewards[arm].append(reward)


NewLearner: TypeAlias = Callable[[], Learner]


class ByLoad:
    """A learner for each load level; all routes share the arm."""

    def __init__(self, name: str, new_learner: NewLearner, arms: Sequence[Setting] = ARMS) -> None:
        """Take what makes a learner of that many arms."""
        self.name = name
        self._new = new_learner
        self._arms = tuple(arms)
        self._learners: dict[LoadLevel, Learner] = {}
        self._arm = 0

    def choose(self, turn: Turn) -> Choice:
        """Return the arm of the load level for all routes."""
        self._arm = self._learner(turn).pull()
        return for_all(self._arms[self._arm], turn)

    def observe(self, counts: Counts) -> None:
        """Reward the arm with the goodput of a row."""
        reward = counts.goodput * UNIT_S / counts.turn.num_rows
        self._learner(counts.turn).learn(self._arm, reward)

    def _learner(self, turn: Turn) -> Learner:
        return self._learners.setdefault(load_level_of(turn.num_rows), self._new())


class ByRouteAndLoad:
    """A learner for each route at each load level, rewarded with the route's own goodput."""

    def __init__(self, name: str, new_learner: NewLearner, arms: Sequence[Setting] = ARMS) -> None:
        """Take what makes a learner of that many arms."""
        self.name = name
        self._new = new_learner
        self._arms = tuple(arms)
        self._learners: dict[tuple[int, LoadLevel], Learner] = {}
        self._pulled: list[int] = []

    def choose(self, turn: Turn) -> Choice:
        """Return each route's own arm."""
        level = load_level_of(turn.num_rows)
        places = [(route, level) for route in range(len(turn.rows))]
        self._pulled = [self._learners.setdefault(place, self._new()).pull() for place in places]
        return for_each([self._arms[arm] for arm in self._pulled], turn)

    def observe(self, counts: Counts) -> None:
        """Reward each present route's arm with the goodput of its rows."""
        level = load_level_of(counts.turn.num_rows)
        goodput = counts.tokens * UNIT_S / counts.busy_s
        for route in np.flatnonzero(counts.turn.rows):
            reward = float(goodput[route] / counts.turn.rows[route])
            self._learners[int(route), level].learn(self._pulled[route], reward)
