"""How an engine's adaptive mode spends the positions of a step.

Each (row, position) slot yields a token with its survival, and all slots cost the same step. So the
likeliest go first, as many as give most tokens per second beside what other routes have verified.
One rule for the simulated engine, for the peer that is given it, and for the oracles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policy.statistics import Floats, Ints

_BEND = 1e-9
"""Relative change of a step's growth from which the table counts as bending."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Queue:
    """The slots of adaptive rows, likeliest to survive first; equal ones of a route together.

    Attributes:
        order: [R * D] place of each group in routes and positions laid end to end.
        size: [R * D] slots of each group.
        survival: [R * D] chance of each group's slots.
        gained: [B + 1] expected tokens of the first so many slots.
    """

    order: Ints
    size: Ints
    survival: Floats
    gained: Floats

    @classmethod
    def of(cls, survival: Floats, offered: Ints) -> Queue:
        """Line up slots.

        Args:
            survival: [R, D] chance of each position and all before it.
            offered: [R, D] rows of which a position may be verified.
        """
        flat = survival.ravel()
        order = np.argsort(-flat, kind="stable")
        size = offered.ravel()[order]
        gains = np.repeat(flat[order], size)
        return cls(
            order=order,
            size=size,
            survival=flat[order],
            gained=np.concatenate(([0.0], np.cumsum(gains))),
        )

    def budgets(self, step_s: Floats, tokens: Floats, positions: Ints, drafting_s: Floats) -> Ints:
        """Return how many slots give most tokens per second; [N].

        Between two bends of the step table, and within slots that are alike, tokens and time both
        grow at one rate: the best number is always at such an end.

        Args:
            step_s: [P] seconds of a target pass by positions.
            tokens: [N] tokens of a step without these slots.
            positions: [N] its positions.
            drafting_s: [N] seconds of its drafting.
        """
        most = len(self.gained) - 1
        ends = np.unique(np.append(np.cumsum(self.size), 0))
        bends = _bends(step_s, int(positions.min()), int(positions.max()) + most)
        tries = np.concatenate(
            [
                np.broadcast_to(ends, (len(positions), len(ends))),
                np.clip(bends[None] - positions[:, None], 0, most),
            ],
            axis=1,
        )
        seconds = step_s[positions[:, None] + tries] + drafting_s[:, None]
        best = np.argmax((tokens[:, None] + self.gained[tries]) / seconds, axis=1)
        return np.asarray(tries[np.arange(len(tries)), best])

    def taken(self, budget: Ints) -> Ints:
        """Return the slots of each position, the likeliest first; [N, R * D] for budgets [N]."""
        before = np.cumsum(self.size) - self.size
        slots = np.empty((len(budget), len(self.size)), dtype=np.intp)
        slots[:, self.order] = np.clip(budget[:, None] - before, 0, self.size)
        return slots


def _bends(step_s: Floats, first: int, last: int) -> Ints:
    """Return the positions from which on a step grows faster than before; within [first, last]."""
    growth = np.diff(step_s[max(0, first - 1) : last + 2])
    is_bend = np.diff(growth) > _BEND * step_s[last]
    return np.flatnonzero(is_bend) + max(0, first - 1) + 1
