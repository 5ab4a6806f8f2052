"""Which proposed trial runs in the next window: one draw by known chances, which an auditor redoes.

Traffic is drawn for by window, not by request, since requests of a step share it: a switchback. All
that is proposed live takes part, each route and load level with an even share of the windows, for
one trial at a time tells what it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from collectors.records import LoadLevel, Plan, Setting
from policy.errors import InvalidInput
from policy.types import Trial

Place: TypeAlias = tuple[str, LoadLevel]

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """How likely each arm was to be put in force at one place.

    Attributes:
        route: route name.
        load: the load level.
        arms: the arms possible and their chances, which sum to 1.
    """

    route: str
    load: LoadLevel
    arms: tuple[tuple[Setting, float], ...]

    @classmethod
    def certain(cls, place: Place, setting: Setting, arms: Sequence[Setting]) -> Chance:
        """Return the chances where one arm, which stands first, was sure among others."""
        others = dict.fromkeys((arm for arm in arms if arm != setting), 0.0)
        return cls(route=place[0], load=place[1], arms=((setting, 1.0), *others.items()))

    def __post_init__(self) -> None:
        """Refuse what is no distribution."""
        chances = [chance for _, chance in self.arms]
        is_sound = all(0 <= chance <= 1 for chance in chances)
        if not is_sound or abs(sum(chances) - 1) > _ROUNDING:
            raise InvalidInput(f"chances of arms must be 0 to 1 and sum to 1, got {chances}")

    def of(self, setting: Setting) -> float:
        """Return the chance of one arm; 0 where it was not among them."""
        return next((share for arm, share in self.arms if arm == setting), 0.0)


def chances_of(
    candidates: Iterable[tuple[str, Trial]], plan: Plan, arms: Sequence[Setting]
) -> tuple[Chance, ...]:
    """Return how likely each arm is in the next window, at every place where one may be tried.

    A trial's chance is its share of the posterior draws over the number of places. The arm in force
    has the rest and stands first.

    Args:
        candidates: routes and what may be tried on them.
        plan: the plan in force.
        arms: the Settings there are; those without a chance are listed with none.
    """
    by_place: dict[Place, list[Trial]] = {}
    for route, trial in candidates:
        by_place.setdefault((route, trial.load), []).append(trial)
    return tuple(
        _chance(place, found, plan, arms, len(by_place))
        for place, found in sorted(by_place.items())
    )


def drawn(chances: Sequence[Chance], seed: int) -> tuple[Place, Setting] | None:
    """Return what is tried where; None where all keep what is in force.

    Args:
        chances: as ``chances_of`` gives them, or as they stand in the log of decisions, in any
            order; a place without a choice changes nothing.
        seed: of the generator.
    """
    tickets = [
        ((chance.route, chance.load), setting, share)
        for chance in sorted(chances, key=lambda one: (one.route, one.load))
        for setting, share in chance.arms[1:]
    ]
    ends = np.cumsum([share for _, _, share in tickets])
    number = int(np.searchsorted(ends, np.random.default_rng(seed).random(), side="right"))
    return tickets[number][:2] if number < len(tickets) else None


def _chance(
    place: Place, trials: Sequence[Trial], plan: Plan, arms: Sequence[Setting], num_places: int
) -> Chance:
    shares = {trial.setting: trial.win_share / num_places for trial in trials}
    standing = plan.setting_for(*place)
    others = dict.fromkeys((arm for arm in arms if arm != standing), 0.0)
    kept = max(0.0, 1 - sum(shares.values()))
    return Chance(
        route=place[0], load=place[1], arms=((standing, kept), *(others | shares).items())
    )
