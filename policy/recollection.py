"""What was learned from windows, kept so that each is folded once and not at every question.

Recommendations come every minute from the same windows and one more. What was learned is a function
of the windows folded, in order: while they are the first of those asked about, folding goes on from
there and gives to the digit what folding all of them anew gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from policy.acceptance import AcceptanceModel
from policy.cost import CostModel
from policy.learning import Learner
from policy.options import RecommendOptions
from policy.types import Window


class Recollection:
    """The newest fold: one learner and the windows that it has seen; one caller at a time."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._half_lives: object = None
        self._windows: tuple[Window, ...] = ()
        self._changes: tuple[frozenset[str], ...] = ()
        self._learner = Learner(AcceptanceModel.empty(), CostModel.empty())

    def fold(
        self, windows: Sequence[Window], options: RecommendOptions
    ) -> tuple[Learner, tuple[frozenset[str], ...]]:
        """Teach windows in order.

        The last one is not kept, since it may not be over yet.

        Args:
            windows: in order of time.
            options: with the half-lives.

        Returns:
            A learner of the caller's own, and by window the routes that began to behave otherwise.
        """
        self._start_with(windows[:-1], options)
        learner = deepcopy(self._learner)
        newest = tuple(taught(learner, window) for window in windows[-1:])
        return learner, (*self._changes, *newest)

    def _start_with(self, windows: Sequence[Window], options: RecommendOptions) -> None:
        half_lives = (
            options.half_life_s,
            dict(options.half_life_by_route),
            options.cost_half_life_s,
        )
        known = len(self._windows)
        if half_lives != self._half_lives or tuple(windows[:known]) != self._windows:
            known, self._changes = 0, ()
            self._learner = Learner(
                AcceptanceModel.empty(options.half_life_s, options.half_life_by_route),
                CostModel.empty(options.cost_half_life_s),
            )
        # Until all are folded nothing counts as known, should folding fail in the middle.
        self._half_lives = None
        fresh = tuple(taught(self._learner, window) for window in windows[known:])
        self._changes = (*self._changes, *fresh)
        self._windows, self._half_lives = tuple(windows), half_lives


def taught(learner: Learner, window: Window) -> frozenset[str]:
    """Teach a learner one window; return the routes that began to behave otherwise."""
    changed = learner.observe(window)
    learner.price(window)
    return frozenset(changed)
