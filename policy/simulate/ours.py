"""The product's own control loop in a world: counts in, windows of the policy's types out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress

import numpy as np

from collectors.records import OFF, Method, Setting, load_level_of
from policy.controller import Controller, Decision
from policy.knowledge import Mix
from policy.options import ControlOptions
from policy.simulate.engine import ARMS, WAYS, Choice, Counts, Turn
from policy.simulate.peers.base import for_each
from policy.simulate.profiles import USUAL_CONTEXT_TOKENS
from policy.simulate.worlds import ROUTES, WINDOW_S
from policy.types import DraftObservation, LoadMix, Observation, StepCost, Window

AUTOPILOT = "spectuner_autopilot"
HALF_LIFE_WINDOWS = 300.0
EPOCH_S = 1_800_000_000.0

_METHODS = {way: method for method, way in WAYS.items() if method is not Method.OFF}


class Spectuner:
    """The control loop of this product, fed by what the engine counts."""

    name = AUTOPILOT

    def __init__(
        self, seed: int, options: ControlOptions | None = None, arms: Sequence[Setting] = ARMS
    ) -> None:
        """Start without knowledge of what the arms do."""
        chosen = options or ControlOptions(half_life_s=HALF_LIFE_WINDOWS * WINDOW_S)
        self._controller = Controller(arms, np.random.default_rng((seed, 2)), chosen)
        self._settings: list[Setting] = []
        self.decisions: list[Decision] = []

    def choose(self, turn: Turn) -> Choice:
        """Ask the controller."""
        named = zip(ROUTES, turn.rows.tolist(), strict=True)
        mix = Mix(
            load=load_level_of(turn.num_rows),
            steps=1.0,
            rows_by_route={name: float(rows) for name, rows in named if rows},
            context_tokens=_context(turn),
        )
        decision = self._controller.decide(mix, EPOCH_S + turn.window * WINDOW_S)
        self.decisions.append(decision)
        self._settings = [decision.settings.get(name, OFF) for name in ROUTES]
        return for_each(self._settings, turn)

    def observe(self, counts: Counts) -> None:
        """Hand the counts over as a window."""
        self._controller.observe(window_of(counts, self._settings))


def window_of(counts: Counts, settings: list[Setting]) -> Window:
    """Return what an engine's observer would have made of the counts."""
    turn = counts.turn
    end_s = EPOCH_S + (turn.window + 1) * WINDOW_S
    present = (turn.rows > 0).tolist()
    return Window(
        start_s=end_s - WINDOW_S,
        end_s=end_s,
        observations=tuple(
            _observation(counts, route, settings[route], end_s)
            for route in compress(range(len(ROUTES)), present)
        ),
        step_costs=(_step_cost(counts),) if turn.num_rows else (),
        draft_costs=tuple(_draft_costs(counts)),
        mixes=(
            LoadMix(
                load=load_level_of(turn.num_rows),
                steps=counts.steps,
                rows_by_route=dict(zip(ROUTES, turn.rows.astype(float).tolist(), strict=True)),
                context_tokens=_context(turn),
                tokens=int(counts.tokens.sum()),
                busy_s=counts.busy_s,
            ),
        ),
    )


def _observation(counts: Counts, route: int, setting: Setting, end_s: float) -> Observation:
    passes = int(counts.turn.rows[route]) * counts.steps
    slots = counts.choice.slots[route]
    attempts = counts.attempts[route, : setting.k].tolist()
    accepts = counts.accepts[route, : setting.k].tolist()
    return Observation(
        route=ROUTES[route],
        setting=setting,
        load=load_level_of(counts.turn.num_rows),
        start_s=end_s - WINDOW_S,
        end_s=end_s,
        passes=passes,
        verify_passes=int(slots[0]) * counts.steps,
        drafted=int(slots.sum()) * counts.steps,
        accepted=sum(accepts),
        tokens=int(counts.tokens[route]),
        attempts=tuple(attempts),
        accepts=tuple(accepts),
    )


def _step_cost(counts: Counts) -> StepCost:
    rows = counts.turn.num_rows
    return StepCost(
        rows=rows,
        positions=rows + int(counts.choice.slots.sum()),
        context_tokens=round(_context(counts.turn)),
        steps=counts.steps,
        total_s=counts.steps * counts.target_s,
        total_square_s2=counts.steps * counts.target_square_s2,
    )


def _draft_costs(counts: Counts) -> list[DraftObservation]:
    costs = []
    for way, method in _METHODS.items():
        uses = (counts.choice.way == way) & (counts.turn.rows > 0)
        if uses.any():
            costs.append(
                DraftObservation(
                    method=method,
                    rows=int(counts.turn.rows[uses].sum()),
                    depth=int(counts.choice.depth[uses].max()),
                    rounds=counts.steps,
                    total_s=counts.steps * float(counts.draft_s[way]),
                )
            )
    return costs


def _context(turn: Turn) -> float:
    return batch_context(turn.num_rows, turn.context_tokens)


def batch_context(rows: int, more_tokens: float) -> float:
    """Return the KV entries of a batch, in steps of a third of an octave.

    Args:
        rows: sequences of usual length.
        more_tokens: entries beyond the usual ones.
    """
    exact = USUAL_CONTEXT_TOKENS * rows + more_tokens
    return math.exp2(round(3 * math.log2(max(1.0, exact))) / 3)
