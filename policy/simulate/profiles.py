"""What a step costs on a piece of hardware: one table, whoever measured it.

A profile is seconds by rows, positions and context, and seconds of a draft round; the built-in ones
are written down here, a measured one is the same record filled from an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property

import numpy as np

from policy.errors import InvalidInput
from policy.statistics import Floats, Ints

UNIT_S = 0.02
"""Seconds of a plain step of one row in the built-in profiles."""

USUAL_CONTEXT_TOKENS = 512.0
"""KV entries of a row whose cost the built-in tables hold already."""

_LONGEST = 16_384
"""Positions up to which a table is laid out."""


class Drafting(IntEnum):
    """How drafts come about in a world."""

    OFF = 0
    LOOKUP = 1
    MODEL = 2
    ONE_PASS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTime:
    """Seconds of one draft round: fixed and by row, for each position or for all at once."""

    fixed_s: float = 0.0
    row_s: float = 0.0
    is_one_pass: bool = False

    def seconds(self, rows: Floats | Ints, depth: Ints) -> Floats:
        """Return the seconds of drafting so many positions for so many rows; 0 without any."""
        passes = np.minimum(depth, 1) if self.is_one_pass else depth
        return np.asarray(np.where(rows > 0, passes * (self.fixed_s + self.row_s * rows), 0.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """The time of a step.

    Attributes:
        name: short name.
        rows: [A] rows at which the table was filled, rising.
        positions: [P] positions at which it was filled, rising; linear between, and beyond by the
            last slope.
        context_tokens: [C] KV entries of the whole batch at which it was filled, rising.
        seconds: [A, P, C] seconds of a target pass.
        drafts: draft time by way of drafting.
        off_tax_ratio: what a step without any speculation costs more than on a clean engine.
        switch_loss_ratio: share of a window lost when all rows change their Setting.
    """

    name: str
    rows: Floats
    positions: Floats
    context_tokens: Floats
    seconds: Floats
    drafts: Mapping[Drafting, DraftTime]
    off_tax_ratio: float = 0.0
    switch_loss_ratio: float = 0.0
    _dense: dict[tuple[int, int], Floats] = field(default_factory=dict)

    def step_table_s(self, rows: int, context_tokens: float) -> Floats:
        """Return the seconds of a target pass for 0, 1, 2, ... positions; [P]."""
        key = (rows, round(context_tokens))
        if key not in self._dense:
            self._dense[key] = self._laid_out(rows, context_tokens)
        return self._dense[key]

    def draft_s(self, way: Drafting, rows: Floats | Ints, depth: Ints) -> Floats:
        """Return the seconds of a draft round; arrays broadcast."""
        return self.drafts[way].seconds(rows, depth)

    def _laid_out(self, rows: int, context_tokens: float) -> Floats:
        by_context = _between(self.seconds, self.rows, float(rows), axis=0)
        known = _between(by_context, self.context_tokens, context_tokens, axis=1)
        return np.maximum(_extended(self.positions, known, self._whole), 0.0)

    @cached_property
    def _whole(self) -> Floats:
        return np.arange(_LONGEST, dtype=np.float64)


def _between(values: Floats, axis_points: Floats, point: float, *, axis: int) -> Floats:
    """Interpolate along an axis; beyond its ends by the slope next to them, one point is flat."""
    if len(axis_points) == 1:
        return np.asarray(values.take(0, axis=axis))
    high = int(np.clip(np.searchsorted(axis_points, point), 1, len(axis_points) - 1))
    below, above = axis_points[high - 1], axis_points[high]
    share = (point - below) / (above - below)
    return np.asarray(
        (1 - share) * values.take(high - 1, axis=axis) + share * values.take(high, axis=axis)
    )


def _extended(points: Floats, values: Floats, at: Floats) -> Floats:
    slope = (values[-1] - values[-2]) / (points[-1] - points[-2])
    inside = np.interp(at, points, values)
    return np.asarray(inside + slope * np.maximum(at - points[-1], 0.0))


_MODEL = DraftTime(fixed_s=0.05 * UNIT_S, row_s=0.0005 * UNIT_S)
_ONE_PASS = DraftTime(fixed_s=0.15 * UNIT_S, row_s=0.0015 * UNIT_S, is_one_pass=True)
_DRAFTS = {
    Drafting.OFF: DraftTime(),
    Drafting.LOOKUP: DraftTime(),
    Drafting.MODEL: _MODEL,
    Drafting.ONE_PASS: _ONE_PASS,
}

_CONTEXT_ROW_S = UNIT_S / 125_000
"""Reading one KV entry, where the weights weigh as much as 125,000 of them (8 B parameters in
16 bit with 8 KV heads of 128 in 32 layers)."""


def gpu() -> Profile:
    """Return a GPU: flat to a knee at 128 positions, padded to 16.

    Source: the stated prototype: 1 + 0.0008 x rows to 128, then 1.1024 + 0.0072 x (rows - 128).
    """
    at = np.arange(4096)
    return _by_positions("gpu", at, _gpu_units(at))


def moe() -> Profile:
    """Return a sparse mixture: each position wakes experts until all are awake, then the GPU.

    8 experts of which a token takes 2; they are 0.7 of the weights a row reads. Verifying costs 2
    to 3 times a row, as reported for such models.

    Source: arXiv:2506.20675, abstract, for the growth; the formula is the expected number of
    distinct experts.
    """
    at = np.arange(4096)
    awake = 8 * (1 - 0.75 ** np.maximum(at, 1)) / 2
    return _by_positions("moe", at, _gpu_units(at) + 0.7 * (awake - 1))


def cpu() -> Profile:
    """Return a CPU: a cliff from matrix-vector to matrix-matrix, not monotone.

    Source: ratios to one row measured for 42 M parameters on one thread (thread-CPU time).
    """
    at = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 32], dtype=np.float64)
    ratio = np.array([1.0, 1.0, 2.05, 2.96, 1.86, 2.69, 2.32, 2.69, 3.52, 5.22])
    return _by_positions("cpu", at, ratio)


def bs_cliff() -> Profile:
    """Return the GPU on which a change of all drafts loses a fifth of a window."""
    return replace(gpu(), name="bs-cliff", switch_loss_ratio=0.2)


def _gpu_units(positions: Ints) -> Floats:
    padded = np.ceil(positions / 16) * 16
    return np.where(padded <= 128, 1 + 0.0008 * padded, 1.1024 + 0.0072 * (padded - 128))


PROFILES: Mapping[str, Callable[[], Profile]] = {
    "gpu": gpu,
    "cpu": cpu,
    "moe": moe,
    "bs-cliff": bs_cliff,
}


def profile_named(name: str, off_tax_ratio: float = 0.03) -> Profile:
    """Return a built-in profile.

    Raises:
        InvalidInput: there is none of that name, or the tax is not 0 or more.
    """
    if name not in PROFILES:
        raise InvalidInput(f"unknown profile {name!r}; use one of: {', '.join(PROFILES)}")
    if not 0 <= off_tax_ratio < 10:
        raise InvalidInput(f"the off-state tax must be 0 or more, got {off_tax_ratio}")
    return replace(PROFILES[name](), off_tax_ratio=off_tax_ratio)


def _by_positions(name: str, positions: Floats | Ints, units: Floats) -> Profile:
    context = np.array([0.0, 1e6])
    extra = _CONTEXT_ROW_S * context
    return Profile(
        name=name,
        rows=np.array([1.0]),
        positions=np.asarray(positions, dtype=np.float64),
        context_tokens=context,
        seconds=(UNIT_S * units)[None, :, None] + extra[None, None],
        drafts=_DRAFTS,
    )
