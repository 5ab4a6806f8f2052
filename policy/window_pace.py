"""The pace of one window: told by the shapes that were timed before, else bounded by physics."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from policy.pace import Pace, PaceLog
from policy.smoother import LEAST_ERROR
from policy.sound_costs import Shape
from policy.timings import MIN_STEPS, NOTHING, Timing

STEP_ERROR = 0.15
"""Relative error of a single step's time, whatever the few others of its window show."""


def window_pace(
    known_steps: Mapping[Shape, Timing], new_steps: Mapping[Shape, Timing], paces: PaceLog
) -> Pace:
    """Return the pace of a window.

    Args:
        known_steps: times at equal pace, up to the window.
        new_steps: times of the window, at its own pace.
        paces: of the windows before it.
    """
    errors = []
    for shape, timing in new_steps.items():
        known = known_steps.get(shape, NOTHING)
        if known.count >= MIN_STEPS:
            own, held = timing.relative_error, known.relative_error
            few = STEP_ERROR**2 / (timing.blocks or timing.count)
            variance = own**2 + held**2 + known.pace_error**2 + LEAST_ERROR**2 + few
            errors.append((math.log(timing.mean_s / known.mean_s), variance, timing.count))
    if errors or not new_steps:
        return paces.told_by(errors)
    return paces.within(*_bounds(known_steps, new_steps))


def _bounds(
    known_steps: Mapping[Shape, Timing], new_steps: Mapping[Shape, Timing]
) -> tuple[float, float]:
    """Return the least and the most that the log pace of steps of new shapes can be.

    A step takes no less than a smaller one at the same pace, and no more than a larger one.
    """
    known = [(shape, one.mean_s) for shape, one in known_steps.items() if one.count >= MIN_STEPS]
    low, high = -math.inf, math.inf
    if not known:
        return low, high
    shapes = np.array([shape for shape, _ in known])
    seconds = np.array([mean_s for _, mean_s in known])
    for shape, timing in new_steps.items():
        smaller = seconds[np.all(shapes <= shape, axis=1)].max(initial=0.0)
        larger = seconds[np.all(shapes >= shape, axis=1)].min(initial=math.inf)
        if smaller > 0:
            high = min(high, math.log(timing.mean_s / smaller))
        if math.isfinite(larger):
            low = max(low, math.log(timing.mean_s / larger))
    return low, high
