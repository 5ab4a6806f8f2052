"""What the service learns beside live traffic: a calibration, and replays of captured requests.

Both run on the simulated engine while it would be idle, so they take nothing from live tokens; how
much of them there is is stated by whoever asks. Replays of lookups stand for scores on captured
answers too, which cost nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from collectors.records import OFF, Method, Setting
from policy.simulate.calibrated import Calibration, RoundTime, VerifyTime
from policy.simulate.engine import STEP_NOISE, WAYS, Engine, Turn
from policy.simulate.ours import EPOCH_S, batch_context, window_of
from policy.simulate.peers.base import for_each
from policy.simulate.profiles import Drafting
from policy.simulate.worlds import ROUTES
from policy.types import Evidence, Recommendation, Window

CALIBRATED_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
CALIBRATED_DEPTHS = (0, 1, 2, 3, 5, 7)
CELLS_PER_WINDOW = 3
"""Cells measured in each window: a calibration meets the machine's pace as it wanders."""

REPEATS = 7
REPLAYED_ROWS = 4
"""Captured requests that a replay runs together, for one window."""

_METHODS: Mapping[Drafting, Method] = {
    way: method for method, way in WAYS.items() if way is not Drafting.OFF
}


def calibration_of(
    engine: Engine, arms: Sequence[Setting], generator: np.random.Generator
) -> Window:
    """Time step and draft shapes on the idle engine, each cell at the pace of its moment.

    Args:
        engine: the world on its profile.
        arms: the Settings whose methods are timed.
        generator: source of the noise of times.
    """
    methods = {arm.method for arm in arms}
    ways = [way for way, method in _METHODS.items() if method in methods]
    noise = _noise(engine, generator)
    profile = engine.profile
    verify, rounds = [], []
    for rows in CALIBRATED_ROWS:
        table = profile.step_table_s(rows, 0.0)
        for depth in CALIBRATED_DEPTHS:
            tax = 1.0 if depth else 1 + profile.off_tax_ratio
            pace, positions = next(noise), rows * (1 + depth)
            verify.append(
                VerifyTime(
                    rows=rows,
                    positions=positions,
                    context_tokens=batch_context(rows, 0.0),
                    seconds=float(table[positions]) * tax * pace,
                )
            )
            for way in ways if depth else ():
                drafted_s = float(profile.draft_s(way, np.array(rows), np.array(depth)))
                rounds.append(RoundTime(way=way, rows=rows, depth=depth, seconds=drafted_s * pace))
    measured = Calibration(
        verify=tuple(verify), rounds=tuple(rounds), catch_up_s={}, off_tax_ratio=0.0
    )
    return replace(measured.window(_METHODS), start_s=EPOCH_S, end_s=EPOCH_S)


def _noise(engine: Engine, generator: np.random.Generator) -> Iterator[float]:
    """Yield the factor on the time of one cell after another: the pace, and what repeats leave."""
    cell = 0
    while True:
        pace = 1 / engine.world.pace.speed(cell // CELLS_PER_WINDOW)
        yield pace * float(1 + STEP_NOISE / np.sqrt(REPEATS) * generator.standard_normal())
        cell += 1


def replayed(
    engine: Engine, window: int, route: int, setting: Setting, generator: np.random.Generator
) -> Window:
    """Run captured requests of a route at a Setting for a window, alone on the engine.

    Returns:
        What was counted; the mix of live steps is left out, as the service leaves it.
    """
    rows = np.zeros(engine.world.num_routes, dtype=np.intp)
    rows[route] = REPLAYED_ROWS
    per_row = float(engine.world.context_tokens[window])
    turn = Turn(window=window, rows=rows, context_tokens=per_row * REPLAYED_ROWS)
    settings = [setting if name == ROUTES[route] else OFF for name in ROUTES]
    choice = engine.allotted(turn, for_each(settings, turn))
    found = window_of(engine.counts(turn, choice, generator), settings)
    shadow = tuple(replace(one, evidence=Evidence.REPLAY) for one in found.observations)
    return replace(found, observations=shadow, mixes=())


class Replays:
    """Which replay is next, as the service chooses: what is wanted first, then the oldest arm."""

    def __init__(
        self, engine: Engine, arms: Sequence[Setting], generator: np.random.Generator
    ) -> None:
        """Start without any replay.

        Args:
            engine: runs them.
            arms: the Settings that may be replayed, off among them or not.
            generator: source of what is counted.
        """
        self._engine, self._generator = engine, generator
        self._arms = [arm for arm in arms if arm.k]
        self._wanted: list[tuple[str, Setting]] = []
        self._done: set[tuple[str, Setting]] = set()
        self._last: dict[Setting, int] = {}

    def propose(self, recommendations: Sequence[Recommendation]) -> None:
        """Take what the newest recommendations would replay, most promising first."""
        found = [
            (trial.most_gain or 0.0, one.route, trial.setting)
            for one in recommendations
            for trial in one.trials
            if trial.by in (Evidence.REPLAY, Evidence.COUNTERFACTUAL)
        ]
        self._wanted = [trial[1:] for trial in sorted(found, key=lambda trial: -trial[0])]

    def round(self, window: int) -> tuple[Window, ...]:
        """Replay what is wanted once on its route, or else the arm left longest on all routes."""
        wanted = next((one for one in self._wanted if one not in self._done), None)
        arm = min(self._arms, key=lambda arm: self._last.get(arm, -1)) if not wanted else wanted[1]
        routes = ROUTES if not wanted else wanted[:1]
        self._last[arm] = window
        self._done.update((route, arm) for route in routes)
        return tuple(
            replayed(self._engine, window, ROUTES.index(route), setting, self._generator)
            for route in routes
            for setting in (OFF, arm)
        )


def joined(live: Window, shadow: Sequence[Window]) -> Window:
    """Return a window with what was replayed in its time."""
    return replace(
        live,
        observations=(*live.observations, *(o for one in shadow for o in one.observations)),
        step_costs=(*live.step_costs, *(cost for one in shadow for cost in one.step_costs)),
        draft_costs=(*live.draft_costs, *(cost for one in shadow for cost in one.draft_costs)),
    )
