"""Costs of a window by shape, without those that cannot have been measured."""

from __future__ import annotations

import math
from typing import TypeAlias

from collectors.records import Method
from policy.timings import Timing, add
from policy.types import DraftObservation, StepCost, Window

SHORTEST_S, LONGEST_S = 1e-9, 1e6
"""Mean times outside of this are no times of a step."""

Shape: TypeAlias = tuple[int, int, int]
"""Rows, positions, context tokens."""

DraftShape: TypeAlias = tuple[Method, int, int]
"""Method, rows, depth."""


def is_sound_step(cost: StepCost) -> bool:
    """True where steps can have taken these times."""
    return _impossible_step(cost) is None


def reasons(window: Window) -> list[str]:
    """Say of each cost that cannot have been measured why."""
    steps = [_impossible_step(cost) for cost in window.step_costs]
    drafts = [_impossible_draft(cost) for cost in window.draft_costs]
    return [reason for reason in (*steps, *drafts) if reason]


def costs(window: Window) -> tuple[dict[Shape, Timing], dict[DraftShape, Timing]]:
    """Return the sound costs of a window by shape."""
    steps: dict[Shape, Timing] = {}
    drafts: dict[DraftShape, Timing] = {}
    for cost in filter(is_sound_step, window.step_costs):
        add(steps, (cost.rows, cost.positions, cost.context_tokens), _timing(cost), 1.0)
    for draft in filter(_is_sound_draft, window.draft_costs):
        timing = Timing(count=draft.rounds, total_s=draft.total_s)
        add(drafts, (draft.method, draft.rows, draft.depth), timing, 1.0)
    return steps, drafts


def _impossible_step(cost: StepCost) -> str | None:
    shape = f"step of {cost.rows} rows and {cost.positions} positions"
    if not (1 <= cost.rows <= cost.positions and cost.context_tokens >= 0 and cost.steps >= 1):
        return f"{shape}, {cost.context_tokens} context tokens, {cost.steps} steps: no such shape"
    is_time = SHORTEST_S <= cost.total_s / cost.steps <= LONGEST_S
    if not (is_time and 0 <= cost.total_square_s2 < math.inf):
        return f"{shape}: {cost.total_s} seconds in {cost.steps} steps"
    return None


def _impossible_draft(cost: DraftObservation) -> str | None:
    shape = f"{cost.method} round of {cost.rows} rows and depth {cost.depth}"
    if not (cost.rows >= 1 and cost.depth >= 1 and cost.rounds >= 1):
        return f"{shape}, {cost.rounds} rounds: no such shape"
    if not 0 <= cost.total_s / cost.rounds <= LONGEST_S:
        return f"{shape}: {cost.total_s} seconds in {cost.rounds} rounds"
    return None


def _is_sound_draft(cost: DraftObservation) -> bool:
    return _impossible_draft(cost) is None


def _timing(cost: StepCost) -> Timing:
    return Timing(
        count=cost.steps,
        total_s=cost.total_s,
        total_square_s2=cost.total_square_s2,
        blocks=cost.blocks or cost.steps,
        windows=1.0,
    )
