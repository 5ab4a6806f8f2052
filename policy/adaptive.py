"""What an adaptive Setting yields is counted by load level, and never pooled with fixed lengths.

The engine ends its drafts where the next position no longer pays, so how long they are depends on
what else runs, and the positions that it keeps are those it was sure of. Neither says what a fixed
length would yield. Load levels without counts borrow from the nearest that have some.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from collectors.records import LoadLevel, Method, Setting, load_level_of
from policy.tally import Tally, family_of
from policy.types import Window

NEAR_PASSES = 20.0
"""Passes that the counts of the next load level stand in for at most; half as many a level on."""

MOST_ROWS = 128
"""Rows at which the last load level counts as full."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLoad:
    """An adaptive family of Settings at one load level.

    Attributes:
        family: the Setting with its ceiling set aside.
        load: the load level.
    """

    family: Setting
    load: LoadLevel


Kind: TypeAlias = Setting | AtLoad
"""What counts are kept by: a family of Settings, or an adaptive one at a load level."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdaptiveRounds:
    """Draft rounds of adaptive Settings, whose depth the engine decides as well.

    Attributes:
        by_size: rounds, and the sum of their depths, by method and the load level that the rows
            which drafted would make.
    """

    by_size: Mapping[tuple[Method, LoadLevel], tuple[float, float]] = field(default_factory=dict)

    def updated(self, window: Window, faded: float, fresh: float) -> AdaptiveRounds:
        """Return the rounds with a window's added; both come in with a weight.

        Rounds of methods that also drafted fixed lengths in the window are left out: which of the
        two asked for the depth cannot be told.
        """
        asked = {(s.setting.method, s.setting.is_adaptive) for s in window.observations}
        by_size = {size: (faded * n, faded * total) for size, (n, total) in self.by_size.items()}
        for cost in window.draft_costs:
            is_adaptive = (cost.method, True) in asked and (cost.method, False) not in asked
            if is_adaptive and cost.rows >= 1 and cost.depth >= 1 and cost.rounds >= 1:
                size = (cost.method, load_level_of(cost.rows))
                rounds, total = by_size.get(size, (0.0, 0.0))
                more = fresh * cost.rounds
                by_size[size] = (rounds + more, total + more * cost.depth)
        return AdaptiveRounds(by_size=by_size)

    def depth(self, method: Method, load: LoadLevel) -> int | None:
        """Return how deep rounds go at the nearest load level with any; None without."""
        found = {size[1]: n for size, n in self.by_size.items() if size[0] is method and n[0] > 0}
        if not found:
            return None
        nearest = min(found, key=lambda other: (other != load, _distance(other, load)))
        rounds, total = found[nearest]
        return math.ceil(total / rounds - _ROUNDING)


def kind_of(setting: Setting, load: LoadLevel) -> Kind:
    """Return what a Setting's counts at a load level are kept by."""
    family = family_of(setting)
    return AtLoad(family=family, load=load) if setting.is_adaptive else family


def fixed_of(family: Setting) -> Setting:
    """Return the family of fixed lengths of the same method."""
    return replace(family, is_adaptive=False)


def tally_at(by_load: Mapping[LoadLevel, Tally], load: LoadLevel) -> Tally:
    """Return the counts of a load level; those of its nearest ones for the passes that it lacks."""
    total = by_load.get(load, Tally())
    near = _nearest(by_load, load)
    lacking = (NEAR_PASSES - total.passes) / max(1, len(near))
    for other in near if lacking > 0 else ():
        held = _seen_from(by_load[other], other, load)
        most = lacking / 2 ** (_distance(other, load) - 1)
        total = total.plus(held, min(1.0, most / held.passes))
    return total


def _nearest(by_load: Mapping[LoadLevel, Tally], load: LoadLevel) -> list[LoadLevel]:
    """Return the other load level with counts that is nearest, or both where two are."""
    others = [other for other, tally in by_load.items() if other != load and tally.passes > 0]
    least = min((_distance(other, load) for other in others), default=0)
    return [other for other in others if _distance(other, load) == least]


def _distance(load: LoadLevel, other: LoadLevel) -> int:
    """Return how many doublings of rows lie between two load levels, at least 1."""
    return max(1, round(abs(float(np.log2(_middle(load) / _middle(other))))))


def _seen_from(tally: Tally, load: LoadLevel, other: LoadLevel) -> Tally:
    """Return counts of a load level as those of another are thought to be.

    At a higher load the batch is thought to draft as many tokens in all as it did, so each row
    fewer: the engine drafts more only where more pays. At a lower one each row drafts as it did.
    """
    return shortened(tally, min(1.0, _middle(load) / _middle(other)))


def shortened(tally: Tally, share: float) -> Tally:
    """Return the counts as if only this share of the passes had drafted."""
    table = tally.by_position.copy()
    table[:2] *= share
    table[3, 1:] *= share
    return replace(
        tally,
        by_position=table,
        verify_passes=tally.verify_passes * share,
        drafted=tally.drafted * share,
        wanted=tally.wanted * share,
    )


def as_yield(tally: Tally) -> Tally:
    """Return the counts with each pass that could have reached a position as an attempt at it.

    So a draft that ended before counts as one that was not accepted.
    """
    table = tally.by_position.copy()
    table[0] = table[3]
    return replace(tally, by_position=table)


def _middle(load: LoadLevel) -> float:
    return float(np.sqrt(load.low * min(load.high, MOST_ROWS)))
