"""Estimates of shapes that were not measured, from the shapes that were.

A non-negative linear trend, since no part of a step takes less than no time, bent through the
nearest measurements. Only ``policy.cost`` uses it, and only where the table has a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias, cast

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

from policy.statistics import Bools, Floats

Reach: TypeAlias = tuple[float, float, float]

REACH_OCTAVES: Reach = (2.0, 0.585, 3.0)
"""How far in rows, positions and context a shape may lie from a measured one, in octaves."""

DOWNWARD = 4.0
"""Beyond the usual reach, smaller steps than measured ones may lie this much further: they hide no
cliff that a larger one does not show."""

NUM_NEIGHBOURS = 4
NUM_FOLDS = 5
MIN_CONTEXT_TOKENS = 16
"""Below this many tokens, contexts count as equal."""

LEAST_ERROR = 0.01
UNCHECKED_ERROR = 0.15
MEDIAN_TO_DEVIATION = 1.4826

_AXIS_WEIGHTS = np.array([0.5, 2.0, 0.5])
_SHORTEST_S = 1e-12


class _Trend(Protocol):
    def fit(self, shapes: Floats, seconds: Floats, sample_weight: Floats, /) -> object: ...
    def predict(self, shapes: Floats, /) -> Floats: ...


class _Neighbours(Protocol):
    def fit(self, shapes: Floats, values: Floats, /) -> object: ...
    def predict(self, shapes: Floats, /) -> Floats: ...


def _trend() -> _Trend:
    model = LinearRegression(positive=True, fit_intercept=False)  # type: ignore[no-untyped-call]
    return cast("_Trend", model)


def _neighbours() -> _Neighbours:
    model = KNeighborsRegressor(NUM_NEIGHBOURS, weights="distance")  # type: ignore[no-untyped-call]
    return cast("_Neighbours", model)


class StepSmoother:
    """Step time over rows, positions and context; NaN far from everything measured.

    Attributes:
        error_ratio: typical relative error on shapes that were held out of the fit.
    """

    def __init__(self, *, shapes: Floats, seconds: Floats, weights: Floats) -> None:
        """Fit, where there are enough shapes to fit anything.

        Args:
            shapes: [N, 3] float64: rows, positions, context tokens.
            seconds: [N] float64, above 0.
            weights: [N] float64, steps behind each.
        """
        self._shapes = shapes
        self._measured_s = seconds
        self._is_fitted = len(shapes) >= NUM_NEIGHBOURS and len(np.unique(shapes[:, 1])) >= 2
        self._trend, self._bend = _trend(), _neighbours()
        self.error_ratio = UNCHECKED_ERROR
        if self._is_fitted:
            self._trend.fit(_features(shapes), seconds, weights)
            bends = np.log(seconds / self._trend_s(shapes))
            self._bend.fit(_places(shapes), bends)
            self.error_ratio = _held_out_error(_places(shapes), bends)

    def seconds(self, shapes: Floats, reach: Reach = REACH_OCTAVES) -> Floats:
        """Return the seconds of shapes [N, 3]; NaN where none was measured within reach.

        Without enough shapes for a fit there is no answer within the usual reach; within a wider
        one, the nearest shape's time grows with the fourth root of the positions: most steps read
        weights, and who asks so far means to find out.
        """
        if not len(self._shapes) or not len(shapes):
            return np.full(len(shapes), np.nan)
        if self._is_fitted:
            value = self._trend_s(shapes) * np.exp(self._bend.predict(_places(shapes)))
        elif reach == REACH_OCTAVES:
            value = np.full(len(shapes), np.nan)
        else:
            value = self._carried(shapes)
        return np.where(self._is_near(shapes, reach), value, np.nan)

    def _carried(self, shapes: Floats) -> Floats:
        gaps = np.abs(_places(shapes)[:, None] - _places(self._shapes)[None]).sum(axis=2)
        nearest = np.argmin(gaps, axis=1)
        growth = shapes[:, 1] / self._shapes[nearest, 1]
        return np.asarray(self._measured_s[nearest] * growth**0.25)

    def _trend_s(self, shapes: Floats) -> Floats:
        return np.maximum(self._trend.predict(_features(shapes)), _SHORTEST_S)

    def _is_near(self, shapes: Floats, reach: Reach) -> Bools:
        gaps = _octaves(shapes)[:, None] - _octaves(self._shapes)[None]
        down = reach if reach == REACH_OCTAVES else tuple(DOWNWARD * octaves for octaves in reach)
        is_near = np.all(gaps <= reach, axis=2) & np.all(-gaps <= down, axis=2)
        return np.asarray(np.any(is_near, axis=1))


class DraftSmoother:
    """Draft round time of one method over rows and depth; NaN far beyond what was measured."""

    def __init__(self, cells: Mapping[tuple[int, int], float]) -> None:
        """Fit rows, depth and their product where two depths or more were measured.

        Otherwise the nearest cell is scaled by depth, since draft passes run one after another.

        Args:
            cells: seconds of a round by (rows, depth); at least one.
        """
        self._shapes = np.array(list(cells), dtype=np.float64)
        self._seconds = np.array(list(cells.values()))
        self._trend: _Trend | None = None
        if len(cells) >= 3 and len(np.unique(self._shapes[:, 1])) >= 2:
            self._trend = _trend()
            self._trend.fit(_draft_features(self._shapes), self._seconds, np.ones(len(cells)))

    def seconds(self, shapes: Floats, reach: float = 1.0) -> Floats:
        """Return the seconds of (rows, depth) shapes [N, 2].

        NaN beyond twice the depth or four times the rows measured, times the reach.
        """
        known = np.maximum(shapes, 1.0)
        value = self._nearest(known) if self._trend is None else self._fitted(known)
        is_far = np.any(shapes > self._shapes.max(axis=0) * (4.0 * reach, 2.0 * reach), axis=1)
        return np.where(is_far, np.nan, value)

    def _fitted(self, shapes: Floats) -> Floats:
        assert self._trend is not None
        return self._trend.predict(_draft_features(shapes))

    def _nearest(self, shapes: Floats) -> Floats:
        gaps = np.abs(np.log2(shapes[:, None] / self._shapes[None])).sum(axis=2)
        nearest = np.argmin(gaps, axis=1)
        return np.asarray(self._seconds[nearest] * shapes[:, 1] / self._shapes[nearest, 1])


def _held_out_error(places: Floats, bends: Floats) -> float:
    """Return the robust spread of the errors when each fifth is estimated from the rest."""
    if len(bends) < NUM_FOLDS + NUM_NEIGHBOURS:
        return UNCHECKED_ERROR
    fold = np.arange(len(bends)) % NUM_FOLDS
    errors = np.empty(len(bends))
    for held in range(NUM_FOLDS):
        others = _neighbours()
        others.fit(places[fold != held], bends[fold != held])
        errors[fold == held] = bends[fold == held] - others.predict(places[fold == held])
    spread = MEDIAN_TO_DEVIATION * float(np.median(np.abs(errors)))
    return min(max(spread, LEAST_ERROR), UNCHECKED_ERROR)


def _octaves(shapes: Floats) -> Floats:
    return np.log2(np.maximum(shapes, [1, 1, MIN_CONTEXT_TOKENS]))


def _places(shapes: Floats) -> Floats:
    return np.asarray(_octaves(shapes) * _AXIS_WEIGHTS)


def _features(shapes: Floats) -> Floats:
    return np.column_stack([np.ones(len(shapes)), shapes])


def _draft_features(shapes: Floats) -> Floats:
    rows, depth = shapes[:, 0], shapes[:, 1]
    return np.column_stack([np.ones(len(shapes)), rows, depth, rows * depth])
