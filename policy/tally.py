"""Counts of one cell, and the check that an observation can have been counted at all."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from collectors.records import MAX_DRAFT_LENGTH, Method, Setting
from policy.statistics import Floats
from policy.types import Observation


def impossible_reason(observation: Observation) -> str | None:
    """Say why an observation cannot have been counted; None where it can."""
    place = f"{observation.route} at {observation.setting.label}"
    attempts, accepts = observation.attempts, observation.accepts
    if not all(math.isfinite(count) for count in _counts(observation)):
        return f"{place}: a count is not a number"
    if min(_counts(observation)) < 0:
        return f"{place}: a count is negative"
    if not observation.verify_passes <= observation.passes:
        return f"{place}: {observation.verify_passes} verify passes in {observation.passes} passes"
    if len(attempts) != len(accepts) or len(attempts) > MAX_DRAFT_LENGTH:
        return f"{place}: {len(attempts)} positions attempted and {len(accepts)} accepted"
    if any(kept > tried for tried, kept in zip(attempts, accepts, strict=True)):
        return f"{place}: a position was accepted more often than attempted"
    if any(later > kept for (_, kept), (later, _) in pairwise(zip(attempts, accepts, strict=True))):
        return f"{place}: a position was attempted more often than the one before was accepted"
    if attempts and attempts[0] > observation.verify_passes:
        return f"{place}: {attempts[0]} first attempts in {observation.verify_passes} passes"
    if observation.drafted and not attempts:
        return f"{place}: no counts by position"
    return None


def _counts(observation: Observation) -> tuple[float, ...]:
    totals = (observation.passes, observation.verify_passes, observation.drafted)
    return (*totals, observation.accepted, *observation.attempts, *observation.accepts)


@lru_cache(maxsize=4096)
def family_of(setting: Setting) -> Setting:
    """Return the Setting with its draft length set aside: what acceptance depends on beside k."""
    return setting if setting.method is Method.OFF else replace(setting, k=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tally:
    """Weighted counts of one cell.

    Attributes:
        by_position: [4, D] float64: attempts, accepts, passes that asked for the position, and
            chances to reach it (accepts of the position before, where it was asked for).
        passes: target passes.
        verify_passes: passes with a draft.
        drafted: draft tokens verified.
        wanted: draft tokens asked for in the passes with a draft.
    """

    by_position: Floats = field(default_factory=lambda: np.zeros((4, MAX_DRAFT_LENGTH)))
    passes: float = 0.0
    verify_passes: float = 0.0
    drafted: float = 0.0
    wanted: float = 0.0

    def plus(self, other: Tally, weight: float = 1.0) -> Tally:
        """Return self with the other's counts added at a weight."""
        return Tally(
            by_position=self.by_position + weight * other.by_position,
            passes=self.passes + weight * other.passes,
            verify_passes=self.verify_passes + weight * other.verify_passes,
            drafted=self.drafted + weight * other.drafted,
            wanted=self.wanted + weight * other.wanted,
        )

    @property
    def attempts(self) -> Floats:
        """By position, attempts; [D]."""
        return np.asarray(self.by_position[0])

    @property
    def accepts(self) -> Floats:
        """By position, accepted attempts; [D]."""
        return np.asarray(self.by_position[1])

    @property
    def asked(self) -> Floats:
        """By position, passes whose Setting asked for it; [D]."""
        return np.asarray(self.by_position[2])

    @property
    def chances(self) -> Floats:
        """By position, passes in which the draft could have gone on to it; [D]."""
        return np.asarray(self.by_position[3])


def tally_of(observation: Observation) -> Tally:
    """Return the counts of one observation."""
    length, k = len(observation.attempts), observation.setting.k
    table = np.zeros((4, MAX_DRAFT_LENGTH))
    table[0, :length] = observation.attempts
    table[1, :length] = observation.accepts
    table[2, :k] = observation.passes
    table[3, :k] = np.concatenate(([observation.passes], table[1]))[:k]
    return Tally(
        by_position=table,
        passes=float(observation.passes),
        verify_passes=float(observation.verify_passes),
        drafted=float(observation.drafted),
        wanted=float(observation.verify_passes * k),
    )
