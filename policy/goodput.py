"""Tokens per second of a batch mix under a plan.

One step serves all rows: its time follows from the SUM of the positions computed and from the
drafting of each method in use, so that one route's draft length costs every other route. With few
rows and idle compute, goodput is one over the latency; with many, it is throughput. Tokens of a
route whose limits the step time breaks count for less, and for nothing far beyond them.

Arrays have the axes S scenes, R routes, A arms, M methods. A scene is a load level whose rows
share steps, or a single row that has a step to itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collectors.records import LoadLevel, Setting
from policy.statistics import Bools, Floats, Ints

NO_DATA_S = 1e30
"""Time of a step whose cost is unknown, finite so that sums stay numbers: never part of a plan."""

_BROKEN = 1e-6
_ROUNDING = 1e-9


class _Remembering:
    """Room, beside the slots of a record, for what is computed from it once."""

    __slots__ = ("__dict__",)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch(_Remembering):
    """Everything the planner needs, as arrays. What follows from them is computed once.

    Attributes:
        loads: load level of each scene; S.
        routes: route names of each scene; S tuples of R.
        arms: the Settings to choose from; A.
        method: [A] number of each arm's method; 0 is off.
        depth: [A] draft length of each arm.
        family: [A] number of what each arm is without its draft length.
        allowed: [S, R, A] arms with evidence and known cost.
        rows: [S, R] mean rows of each route in a step.
        tokens: [S, R, A] mean tokens the route's rows yield in a step.
        positions: [S, R, A] mean positions they take in the target pass.
        own_s: [S, R, A] seconds the route's rows add by themselves; 0 where rows share steps.
        limit_s: [S, R, A] longest step that keeps the route's limits, at least a plain step; inf
            without limits.
        step_s: [S, P] seconds of the target pass over a uniform grid of positions.
        step_from: [S] positions at the first grid point.
        step_per_position: [S] grid points per position.
        draft_s: [S, M, H, D] seconds of a draft round over a uniform grid of rows, and depth.
        draft_per_row: [S] grid points per row, the first one at one row.
    """

    loads: tuple[LoadLevel, ...]
    routes: tuple[tuple[str, ...], ...]
    arms: tuple[Setting, ...]
    method: Ints
    depth: Ints
    family: Ints
    allowed: Bools
    rows: Floats
    tokens: Floats
    positions: Floats
    own_s: Floats
    limit_s: Floats
    step_s: Floats
    step_from: Floats
    step_per_position: Floats
    draft_s: Floats
    draft_per_row: Floats

    @property
    def num_scenes(self) -> int:
        """S."""
        return len(self.loads)

    @property
    def num_methods(self) -> int:
        """M, off included."""
        return int(self.draft_s.shape[1])

    @cached_property
    def has_own_steps(self) -> bool:
        """True where arms take time of their own, as where a row has a step to itself."""
        return bool(self.own_s.any())

    @cached_property
    def has_limits(self) -> bool:
        """True where any route has a limit."""
        return bool(np.isfinite(self.limit_s).any())

    @cached_property
    def arm_major(self) -> ArmMajor:
        """The arrays by arm, with the arms in front."""
        named = {
            name: np.ascontiguousarray(np.moveaxis(getattr(self, name), 2, 0))
            for name in ArmMajor.__slots__
        }
        return ArmMajor(**named)

    @cached_property
    def arms_by_method(self) -> tuple[Ints | slice, ...]:
        """Numbers of each method's arms; M, off included. A slice where they follow each other."""
        return tuple(_run(np.flatnonzero(self.method == n)) for n in range(self.num_methods))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArmMajor:
    """Arrays of a batch with the arms in front, [A, S, R]: what all routes share spreads in runs.

    Attributes:
        allowed: as in the batch, like the others.
        tokens: in a step.
        positions: in the target pass.
        own_s: seconds of the rows' own.
        limit_s: longest step.
    """

    allowed: Bools
    tokens: Floats
    positions: Floats
    own_s: Floats
    limit_s: Floats


def _run(places: Ints) -> Ints | slice:
    """Return places as a slice where they are a run: arrays are then seen, not copied."""
    if not len(places) or places[-1] - places[0] != len(places) - 1:
        return places
    return slice(int(places[0]), int(places[-1]) + 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rates:
    """What choices are predicted to give.

    Attributes:
        step_s: [N] seconds of a step.
        goodput: [N] tokens per second that keep their limits.
        by_route: [N, R] each route's part of it.
    """

    step_s: Floats
    goodput: Floats
    by_route: Floats


def rates(batch: Batch, scene: Ints, choice: Ints) -> Rates:
    """Predict goodput.

    Args:
        batch: the mix.
        scene: [N] scene of each choice.
        choice: [N, R] arm of each route.
    """
    seconds = step_seconds(batch, scene, choice)
    tokens = picked(batch.tokens, scene, choice)
    kept = tokens * worth(picked(batch.limit_s, scene, choice), seconds[:, None])
    by_route = kept / seconds[:, None]
    return Rates(step_s=seconds, goodput=by_route.sum(axis=1), by_route=by_route)


def scores_of(batch: Batch, scene: Ints, choice: Ints) -> Floats:
    """Return tokens per second, with plans that break a limit behind all that keep them; [N]."""
    at = places(batch, scene, choice)
    seconds = _seconds_at(batch, scene, choice, at)
    scores = batch.tokens.ravel().take(at).sum(axis=1) / seconds
    if not batch.has_limits:
        return np.asarray(scores)
    return limited(scores, batch.limit_s.ravel().take(at).min(axis=1), seconds)


def limited(scores: Floats, limit_s: Floats, seconds: Floats) -> Floats:
    """Put scores beyond a limit behind all others, the nearer to the limit the better."""
    breaks = limit_s * (1 + _ROUNDING) < seconds
    if not breaks.any():
        return scores
    behind = scores[breaks] * _BROKEN * worth(limit_s[breaks], seconds[breaks])
    found = scores.copy()
    found[breaks] = behind
    return found


def step_seconds(batch: Batch, scene: Ints, choice: Ints) -> Floats:
    """Return the seconds of one step; [N]. Arguments as in ``rates``."""
    return _seconds_at(batch, scene, choice, places(batch, scene, choice))


def _seconds_at(batch: Batch, scene: Ints, choice: Ints, at: Ints) -> Floats:
    """Return the seconds of one step; [N]. Places as ``places`` gives them."""
    total = target_seconds(batch, scene, batch.positions.ravel().take(at).sum(axis=1))
    if batch.has_own_steps:
        total = total + batch.own_s.ravel().take(at).sum(axis=1)
    numbers = np.arange(1, batch.num_methods)[:, None]
    uses = batch.method.take(choice) == numbers[:, :, None]
    deepest = (batch.depth.take(choice) * uses).max(axis=2)
    for seconds in draft_seconds(
        batch, scene, numbers, (batch.rows[scene] * uses).sum(axis=2), deepest
    ):
        total = total + seconds
    return np.asarray(total)


def target_seconds(batch: Batch, scene: Ints, positions: Floats) -> Floats:
    """Return the seconds of target passes; scene and positions broadcast."""
    last = batch.step_s.shape[1] - 1
    place = np.asarray(positions - batch.step_from[scene])
    place *= batch.step_per_position[scene]
    index = _nearest(place, last)
    index += scene * (last + 1)
    return np.asarray(batch.step_s.ravel().take(index), dtype=np.float64)


def draft_seconds(
    batch: Batch, scene: Ints, method: Ints | int, rows: Floats, depth: Ints
) -> Floats:
    """Return the mean seconds of drafting in a step; arrays broadcast.

    With less than one row of a method in the mean, it drafts in that share of the steps only.
    """
    _, num_methods, num_rows, num_depths = batch.draft_s.shape
    index = _nearest((rows - 1) * batch.draft_per_row[scene], num_rows - 1)
    first = (scene * num_methods + method) * (num_rows * num_depths)
    seconds = np.asarray(batch.draft_s.ravel().take((index * num_depths + first) + depth))
    seconds *= np.minimum(rows, 1.0)
    return seconds


def _nearest(place: Floats, last: int) -> Ints:
    """Return the grid points next to places, within the grid; the places are overwritten."""
    place += 0.5
    np.maximum(place, 0, out=place)
    np.minimum(place, last, out=place)
    return place.astype(np.intp)


def worth(limit_s: Floats, seconds: Floats) -> Floats:
    """Return what a token counts for: 1 inside the limit, falling with the square beyond it."""
    return np.asarray(np.square(np.minimum(1.0, limit_s / seconds)))


def picked(values: Floats, scene: Ints, choice: Ints) -> Floats:
    """Take [N, R] out of [S, R, A]: each route's value at its chosen arm."""
    return np.asarray(values.ravel().take(_places(values.shape, scene, choice)))


def places(batch: Batch, scene: Ints, choice: Ints) -> Ints:
    """Return where each route's chosen arm stands in arrays [S, R, A] laid end to end; [N, R]."""
    return _places(batch.tokens.shape, scene, choice)


def _places(shape: tuple[int, ...], scene: Ints, choice: Ints) -> Ints:
    _, num_routes, num_arms = shape
    return (scene[:, None] * num_routes + np.arange(num_routes)) * num_arms + choice


def numbered(values: Sequence[Hashable]) -> Ints:
    """Number values in the order in which they first come; equal ones alike."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.intp)
