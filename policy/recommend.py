"""Windows, routes and the plan in force in; one Recommendation a route out.

The caller gives time and randomness, so that the same question has the same answer. "No change"
and "not enough data" are answers: what is in force stays in force.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from collectors.records import OFF, Plan, PlanEntry, Route, Setting
from policy.budgets import EditBudget
from policy.errors import InvalidInput
from policy.knowledge import Knowledge, latencies, merged_mixes, newest_s
from policy.options import RecommendOptions
from policy.outlook import Outlook
from policy.pools import unknown_reason
from policy.recollection import Recollection
from policy.summary import no_answer, recommendation
from policy.types import FeatureCheck, PlanEdit, Recommendation, Window
from policy.verdicts import Case, verdicts

__all__ = ["RecommendOptions", "learn", "plan_with", "recommend"]


def recommend(
    windows: Sequence[Window],
    routes: Sequence[Route],
    current: Plan,
    arms: Sequence[Setting],
    *,
    now_s: float,
    generator: np.random.Generator,
    options: RecommendOptions | None = None,
    edits: Sequence[PlanEdit] = (),
    features: Mapping[Setting, FeatureCheck] | None = None,
    memory: Recollection | None = None,
) -> tuple[Recommendation, ...]:
    """Say for each route what should change, and why.

    The Settings of all routes are chosen together, since they share steps; each gain holds with
    the other routes' recommendations in force, and says so where it would not hold without them.

    Args:
        windows: what was seen, in any order.
        routes: the routes that want an answer, with their limits.
        current: the plan in force.
        arms: the Settings to choose from; off and those in force are always among them.
        now_s: the present, Unix seconds.
        generator: source of the posterior draws.
        options: how cautious to be.
        edits: changes of the plan so far, in any order; entries that changed too often stay.
        features: by kind of Setting, whether acceptance depends on what requests are like.
        memory: what was learned at the last question, which saves folding the same windows again.

    Returns:
        One recommendation a route, in the order given.

    Raises:
        InvalidInput: now_s is no time.
    """
    if not math.isfinite(now_s):
        raise InvalidInput(f"now_s must be a time in Unix seconds, got {now_s}")
    chosen = options or RecommendOptions()
    newest = newest_s(windows)
    if newest is None:
        return tuple(no_answer(route.name, "nothing was observed yet") for route in routes)
    if now_s - newest > chosen.max_age_s:
        age = f"the newest observation is {now_s - newest:.0f} s old"
        return tuple(no_answer(route.name, age) for route in routes)
    case = learn(
        windows,
        routes,
        current,
        arms,
        now_s=now_s,
        generator=generator,
        options=chosen,
        edits=edits,
        features=features,
        memory=memory,
    )
    decided = list(verdicts(case))
    return tuple(
        recommendation(
            route.name,
            [verdict for verdict in decided if verdict.route == route.name],
            case.knowledge,
            case.ignored,
            features or {},
            unknown_reason(chosen),
        )
        for route in routes
    )


def plan_with(current: Plan, recommendation: Recommendation) -> Plan:
    """Return the plan after approving one route's recommendation.

    The version rises by one; a recommendation without changes gives the plan back as it is.
    """
    changes = [c for c in recommendation.changes if c.proposed != c.current]
    if not changes:
        return current
    new = {(recommendation.route, c.load): c.proposed for c in changes}
    kept = tuple(entry for entry in current.entries if (entry.route, entry.load) not in new)
    added = tuple(
        PlanEntry(route=route, load=load, setting=setting) for (route, load), setting in new.items()
    )
    return replace(current, version=current.version + 1, entries=(*kept, *added))


def learn(
    windows: Sequence[Window],
    routes: Sequence[Route],
    current: Plan,
    arms: Sequence[Setting],
    *,
    now_s: float,
    generator: np.random.Generator,
    options: RecommendOptions,
    edits: Sequence[PlanEdit] = (),
    features: Mapping[Setting, FeatureCheck] | None = None,
    memory: Recollection | None = None,
) -> Case:
    """Fold windows into everything a decision is made from. Arguments as in ``recommend``."""
    ordered = sorted((w for w in windows if math.isfinite(w.end_s)), key=lambda w: w.end_s)
    learner, changes = (memory or Recollection()).fold(ordered, options)
    budget = edits_left(ordered, changes, edits, options)
    acceptance = learner.acceptance.faded_to(now_s)
    mixes, bad_mixes = merged_mixes(ordered, now_s=now_s, half_life_s=options.half_life_s)
    names = {name for mix in mixes for name in mix.rows_by_route}
    in_force = [current.setting_for(name, mix.load) for mix in mixes for name in sorted(names)]
    return Case(
        knowledge=Knowledge(
            acceptance=acceptance,
            cost=learner.cost,
            arms=tuple(dict.fromkeys((OFF, *arms, *in_force))),
            min_passes=options.min_passes,
            posteriors={},
            outlook=Outlook(
                acceptance,
                learner.regimes,
                generator,
                num_draws=options.num_draws,
                num_windows=options.lasting_windows,
                features=features,
            ),
        ),
        regimes=learner.regimes,
        switching=learner.switching,
        budget=budget,
        now_s=now_s,
        mixes=mixes,
        latencies=latencies(seen for window in ordered for seen in window.requests),
        routes={route.name: route for route in routes},
        current=current,
        options=options,
        generator=generator,
        ignored=(*learner.ignored, *bad_mixes),
    )


def edits_left(
    windows: Sequence[Window],
    changes: Sequence[Collection[str]],
    edits: Sequence[PlanEdit],
    options: RecommendOptions,
) -> EditBudget:
    """Return what edits of the plan are left after windows, in order.

    A route that began to behave otherwise gets its edits back.
    """
    budget = EditBudget(options.granted_changes, options.seconds_per_change)
    waiting = sorted(edits, key=lambda edit: edit.at_s)
    for window, changed in zip(windows, changes, strict=True):
        while waiting and waiting[0].at_s <= window.end_s:
            edit = waiting.pop(0)
            budget.spend(edit.route, edit.load, edit.at_s)
        for route in changed:
            budget.pardon(route)
    for edit in waiting:
        budget.spend(edit.route, edit.load, edit.at_s)
    return budget
