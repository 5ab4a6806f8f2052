"""What a plan is predicted to yield at each place, from acceptance and step times alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from collectors.records import LoadLevel, Plan
from policy.goodput import NO_DATA_S, Batch, rates
from policy.knowledge import Knowledge, Mix
from policy.lottery import Place
from policy.scenes import lone_batch, shared_batch
from policy.statistics import Ints

_LONGEST_S = NO_DATA_S * 1e-12
"""Above this, a time is mixed with an unknown one."""


def predicted_tokens_per_s(
    knowledge: Knowledge, mixes: Sequence[Mix], plan: Plan
) -> Mapping[Place, float]:
    """Return the tokens of each route by busy second of the engine at each load level.

    Places where the plan's Setting has no evidence, or the step no known time, are left out; where
    routes share steps, so are the others of that load level.
    """
    found: dict[Place, float] = {}
    shared = shared_batch(knowledge, mixes, {})
    for scene in range(shared.num_scenes if shared is not None else 0):
        assert shared is not None
        found |= _shared(shared, scene, plan)
    lone = lone_batch(knowledge, mixes, {})
    if lone is not None:
        for mix in mixes:
            found |= _lone(lone, mix, plan)
    return found


def _shared(batch: Batch, scene: int, plan: Plan) -> Mapping[Place, float]:
    choice = _choice(batch, scene, plan)
    if choice is None:
        return {}
    made = rates(batch, np.array([scene]), choice[None])
    if made.step_s[0] > _LONGEST_S:
        return {}
    places = [(route, batch.loads[scene]) for route in batch.routes[scene]]
    held = batch.rows[scene] > 0
    return {
        place: float(rate)
        for place, rate, is_held in zip(places, made.by_route[0], held, strict=True)
        if is_held
    }


def _lone(batch: Batch, mix: Mix, plan: Plan) -> Mapping[Place, float]:
    """Share the time of a load level at which each step holds one row between its routes."""
    scenes = [s for s in range(batch.num_scenes) if batch.loads[s] == mix.load]
    tokens: dict[str, float] = {}
    busy_s = 0.0
    for scene in scenes:
        route, choice = batch.routes[scene][0], _choice(batch, scene, plan)
        if choice is None:
            return {}
        made = rates(batch, np.array([scene]), choice[None])
        seconds, rows = float(made.step_s[0]), mix.rows_by_route[route]
        tokens[route] = rows * float(made.goodput[0]) * seconds
        busy_s += rows * seconds
    return {(route, mix.load): made / busy_s for route, made in tokens.items()}


def _choice(batch: Batch, scene: int, plan: Plan) -> Ints | None:
    """Return the plan's arms in a scene; None where one of them has no evidence."""
    number = {arm: index for index, arm in enumerate(batch.arms)}
    load: LoadLevel = batch.loads[scene]
    arms = [number.get(plan.setting_for(route, load)) for route in batch.routes[scene]]
    for route, arm in enumerate(arms):
        if batch.rows[scene, route] > 0 and (arm is None or not batch.allowed[scene, route, arm]):
            return None
    return np.array([arm or 0 for arm in arms], dtype=np.intp)
