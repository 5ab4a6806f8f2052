"""The control loop's weighing, for plans that stay in force for many windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from policy.adaptive import AtLoad, Kind
from policy.goodput import Batch
from policy.knowledge import Knowledge
from policy.regimes import Regimes
from policy.statistics import Floats
from policy.weighing import Belief


class LastingBelief(Belief):
    """What the weighing is to believe: not of the next window, but of all that a plan will see."""

    def __init__(
        self, regimes: Regimes, knowledge: Knowledge, batch: Batch, context_tokens: float
    ) -> None:
        """Take the outlook of the knowledge, which must have one; the batch holds one scene."""
        super().__init__(regimes, knowledge, batch, context_tokens)
        assert knowledge.outlook is not None
        self._outlook = knowledge.outlook

    def mean_tokens(self) -> Floats:
        """Return the expected tokens of a pass; [R, A]."""
        return self._stacked(self._outlook.mean_tokens)

    def draws(self, generator: np.random.Generator, num_draws: int, *, is_next: bool) -> Floats:
        """Return the outlook's draws, which hold for now and later alike; [N, R, A]."""
        return np.moveaxis(self._stacked(self._outlook.drawn_tokens), 0, 1)

    def mean_fill(self, name: str, kind: AtLoad) -> float:
        """Return the share of its ceiling that an adaptive Setting keeps."""
        return self._outlook.mean_fill(name, kind)

    def _stacked(self, tokens_of: Callable[[str, Kind], Floats]) -> Floats:
        names, kinds = self._batch.routes[0], dict.fromkeys(self._kinds)
        by_route = [{kind: tokens_of(name, kind) for kind in kinds} for name in names]
        return np.stack([self._by_arm(tokens) for tokens in by_route])


def one_scene(batch: Batch, scene: int) -> Batch:
    """Return one scene of a batch as a batch of its own."""
    only = slice(scene, scene + 1)
    shared = ("arms", "method", "depth", "family")
    by_scene = {name: getattr(batch, name)[only] for name in batch.__slots__ if name not in shared}
    return replace(batch, **by_scene)
