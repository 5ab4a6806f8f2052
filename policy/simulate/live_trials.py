"""Live trials of a reviewed service in a world: drawn by window, within a share of tokens.

The draw is the service's own (`policy/lottery.py`): every place with a trial proposed that its
route's tokens still allow takes part, and one at most is tried in a window.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collectors.records import LoadLevel, Plan, Setting
from policy.lottery import Place, chances_of, drawn
from policy.types import Evidence, Recommendation, Trial

_SEEDS = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What one window delivered.

    Attributes:
        load: its load level.
        tokens: live tokens by route.
        tried: the route that was on trial in it; None without.
    """

    load: LoadLevel
    tokens: Mapping[str, int]
    tried: str | None


class LiveTrials:
    """What is proposed live, and what of each route's tokens is left for it."""

    def __init__(self, day_windows: int, arms: Sequence[Setting], seed: int) -> None:
        """Start without proposals.

        Args:
            day_windows: windows over which the share of tokens is counted.
            arms: the Settings there are.
            seed: of the draws.
        """
        self._arms = tuple(arms)
        self._generator = np.random.default_rng((seed, 5))
        self._proposed: tuple[tuple[str, Trial], ...] = ()
        self._day: deque[Served] = deque(maxlen=day_windows)

    def propose(self, recommendations: Iterable[Recommendation]) -> None:
        """Take what the newest recommendations would try live."""
        self._proposed = tuple(
            (one.route, trial)
            for one in recommendations
            for trial in one.trials
            if trial.by is Evidence.LIVE and trial.win_share > 0
        )

    def draw(self, plan: Plan) -> tuple[Place, Setting] | None:
        """Return what is tried in the next window; None where all keep what is in force."""
        allowed = list(self._allowed())
        if not allowed:
            return None
        return drawn(chances_of(allowed, plan, self._arms), int(self._generator.integers(_SEEDS)))

    def serve(self, served: Served) -> None:
        """Count a window that is over."""
        self._day.append(served)

    def _allowed(self) -> Iterator[tuple[str, Trial]]:
        """Give what the tokens of its route allow for a window at its load level, as served."""
        if not self._proposed:
            return
        total, at_load, spent = self._sums()
        for route, trial in self._proposed:
            left = int(trial.most_token_share * total[route]) - spent[route]
            if left > 0 and left * len(self._day) >= at_load[route, trial.load] > 0:
                yield route, trial

    def _sums(self) -> tuple[Counter[str], Counter[tuple[str, LoadLevel]], Counter[str]]:
        """Return tokens by route, by route and load level, and of trials by route."""
        total, spent = Counter[str](), Counter[str]()
        at_load = Counter[tuple[str, LoadLevel]]()
        for one in self._day:
            for route, tokens in one.tokens.items():
                total[route] += tokens
                at_load[route, one.load] += tokens
            if one.tried is not None:
                spent[one.tried] += one.tokens[one.tried]
        return total, at_load, spent
