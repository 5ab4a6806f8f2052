"""From blocks to the speed of each arm at each level, and over off."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from policy.types import Interval
from tuner.bench.service.blocks import Block, Level
from tuner.bench.service.intervals import Reading, interval_of, pooled_scatter
from tuner.bench.service.options import BEST_FIXED, OFF_ARM

Speeds = dict[tuple[str, int, Level], float]
"""Tokens per second by arm, round and level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFigures:
    """What the arms did at one level.

    Attributes:
        level: of the traffic.
        tokens_per_s: of the whole engine, by arm.
        over_off: ratio to off, paired by round, by arm.
    """

    level: Level
    tokens_per_s: Mapping[str, Interval]
    over_off: Mapping[str, Interval]

    def to_dict(self) -> dict[str, object]:
        """Return the figures; docs/json.md documents the keys."""
        return {
            "concurrency": self.level.concurrency,
            "tokens_per_s": {arm: one.to_dict() for arm, one in self.tokens_per_s.items()},
            "over_off": {arm: one.to_dict() for arm, one in self.over_off.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the arms did.

    Attributes:
        levels: lowest first, the surge last.
        overall: ratio to off over all levels, as geometric mean, by arm.
    """

    levels: tuple[LevelFigures, ...]
    overall: Mapping[str, Interval]


def compare(blocks: Iterable[Block], arms: Sequence[str], fixed: Sequence[str]) -> Comparison:
    """Compare the arms; blocks in which another plan than the arm's was in force are left out.

    Args:
        blocks: of one condition.
        arms: in the order in which they are shown.
        fixed: arms of which `best_fixed` is the best, by the rounds that it is not judged on.
    """
    speeds: Speeds = {
        (block.stretch.arm, block.stretch.round, block.stretch.level): block.tokens_per_s
        for block in blocks
        if block.is_valid
    }
    if fixed:
        speeds |= _best_fixed(speeds, fixed)
    arms = [*arms, BEST_FIXED] if fixed else list(arms)
    logs = {arm: _by_level(speeds, arm) for arm in arms}
    ratios = {arm: _over_off(speeds, arm) for arm in arms}
    plain, over = _intervals(logs), _intervals(ratios)
    levels = sorted(
        {level for _, _, level in speeds}, key=lambda one: (one.is_surge, one.concurrency)
    )
    return Comparison(
        levels=tuple(
            LevelFigures(
                level=level,
                tokens_per_s={arm: plain[arm, level] for arm in arms if (arm, level) in plain},
                over_off={arm: over[arm, level] for arm in arms if (arm, level) in over},
            )
            for level in levels
        ),
        overall=_overall(ratios),
    )


def _by_level(speeds: Speeds, arm: str) -> dict[Level, list[Reading]]:
    found: dict[Level, list[Reading]] = {}
    for (name, _, level), speed in speeds.items():
        if name == arm:
            found.setdefault(level, []).append(Reading(log=math.log(speed)))
    return found


def _over_off(speeds: Speeds, arm: str) -> dict[Level, list[Reading]]:
    paired = {
        (arm, turn, level): speed / speeds[OFF_ARM, turn, level]
        for (name, turn, level), speed in speeds.items()
        if name == arm and (OFF_ARM, turn, level) in speeds
    }
    return _by_level(paired, arm)


def _best_fixed(speeds: Speeds, fixed: Sequence[str]) -> Speeds:
    """Return for each round the speeds of the fixed arm that was best in the other rounds."""
    chosen: Speeds = {}
    for turn in sorted({turn for _, turn, _ in speeds}):
        others = {place: speed for place, speed in speeds.items() if place[1] != turn}
        merits = {arm: _merit(others, arm) for arm in fixed}
        best = max(fixed, key=lambda arm: merits[arm])
        chosen |= {
            (BEST_FIXED, turn, level): speed
            for (arm, at, level), speed in speeds.items()
            if arm == best and at == turn
        }
    return chosen


def _merit(speeds: Speeds, arm: str) -> float:
    """Mean log ratio over off of all levels; the least where nothing was measured."""
    logs = [one.log for group in _over_off(speeds, arm).values() for one in group]
    return sum(logs) / len(logs) if logs else -math.inf


def _intervals(
    readings: Mapping[str, Mapping[Level, Sequence[Reading]]],
) -> dict[tuple[str, Level], Interval]:
    found: dict[tuple[str, Level], Interval] = {}
    for arm, groups in readings.items():
        scatter = pooled_scatter(groups.values())
        if scatter is not None:
            found |= {(arm, level): interval_of(group, scatter) for level, group in groups.items()}
    return found


def _overall(readings: Mapping[str, Mapping[Level, Sequence[Reading]]]) -> dict[str, Interval]:
    """Return each arm's geometric mean over levels, which have as many rounds each."""
    found = {}
    for arm, groups in readings.items():
        scatter = pooled_scatter(groups.values())
        if scatter is not None:
            everything = [one for group in groups.values() for one in group]
            found[arm] = interval_of(everything, scatter)
    return found
