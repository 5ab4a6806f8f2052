"""Trying arms on purpose, so that there is something to learn from: said plainly, undone after.

Shadow: captured prompts run on the longest draft of each method beside speculation off. Live: every
route runs an arm of the methods that did best there, each for a stretch of the day. Real services
explore in shadow and on few live tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collectors.records import LoadLevel, Method, Plan, PlanEntry, Setting

WHO = "demo"

MOST_LIVE = 4
"""Methods tried on live traffic; with more, a short day leaves each too few requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """One live stretch.

    Attributes:
        before: plan in force before it.
        during: the same with the arm at every place tried.
        places: what was tried, as plan entries.
    """

    before: Plan
    during: Plan
    places: tuple[PlanEntry, ...]


def exploring(
    before: Plan, routes: Sequence[str], loads: Sequence[LoadLevel], arm: Setting
) -> Exploration:
    """Return the plan that tries an arm on all routes at some load levels."""
    places = tuple(
        PlanEntry(route=route, load=load, setting=arm) for route in routes for load in loads
    )
    tried = {(entry.route, entry.load) for entry in places}
    kept = [entry for entry in before.entries if (entry.route, entry.load) not in tried]
    during = Plan(version=before.version, default=before.default, entries=(*kept, *places))
    return Exploration(before=before, during=during, places=places)


def explored(live: Plan, exploration: Exploration) -> Plan:
    """Return the live plan with the arm taken back wherever it is still in force.

    What an operator changed meanwhile stays.
    """
    tried = set(exploration.places)
    left = {(entry.route, entry.load) for entry in live.entries if entry in tried}
    kept = [entry for entry in live.entries if entry not in tried]
    restored = [entry for entry in exploration.before.entries if (entry.route, entry.load) in left]
    return Plan(version=live.version, default=live.default, entries=(*kept, *restored))


def live_arms(arms: Sequence[Setting], speeds: Mapping[Method, float]) -> tuple[Setting, ...]:
    """Return what a cautious operator would try: the best methods at middle draft length.

    Args:
        arms: to choose from.
        speeds: over speculation off, as seen in shadow; a method without one counts as 1.
    """
    middle = [own[(len(own) - 1) // 2] for own in _by_method(arms)]
    return tuple(sorted(middle, key=lambda arm: -speeds.get(arm.method, 1.0))[:MOST_LIVE])


def shadow_arms(arms: Sequence[Setting]) -> tuple[Setting, ...]:
    """Return the longest draft of each method: it shows acceptance at every position before."""
    return tuple(own[-1] for own in _by_method(arms))


def _by_method(arms: Sequence[Setting]) -> list[list[Setting]]:
    methods = sorted({arm.method for arm in arms if arm.method is not Method.OFF})
    by_length = sorted(arms, key=lambda arm: (arm.k, arm.max_nodes))
    return [[arm for arm in by_length if arm.method is method] for method in methods]
