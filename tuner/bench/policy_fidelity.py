"""The gate of part A: whether recorded answers on the measured table predict the real engine.

Each cell is a mix of routes, a load and a Setting whose steps were never timed before. A batch of
each mix and load runs on, and its Settings take turns in each of the turns in which the table is
measured, beside the same reference pass, so that a machine that slows down for a while does so for
all; the same steps are then replayed. Where the error is too large or Settings come out in another
order, no policy may be scored on the table.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product

import numpy as np

from collectors.records import OFF, DecodeStep, Setting
from policy.simulate.closed_loop import Batch, Field
from policy.simulate.engine import lookup, model
from policy.simulate.replayed import ReplayedBatch, Timetable
from tuner.bench.policy_batches import QUANTILE, Reference, TimedStep
from tuner.bench.policy_engine import LiveBatch, Parts
from tuner.bench.policy_traces import Recorded
from tuner.bench.questions import Encoded

MOST_ERROR = 0.10
LEAST_TAU = 0.9

MIXES = (("code_edit", "json_extract", "rag_answer", "chat"), ("rag_answer", "chat"))
LOADS = (4, 8, 16)
SETTINGS = (OFF, lookup(4), model(1), model(5))
STEPS = 5
LIKE_STEPS = 14
"""Steps of like shape behind each percentile, from all turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One mix, load and Setting.

    Attributes:
        routes: of the mix, with the same rows each.
        rows: sequences in the batch.
        setting: of all.
        measured: tokens per CPU-second on the engine, each step at the 25th percentile of steps
            like it, as in the table; steps with prefill, those after them and the first of each
            turn, in which drafters catch up, left out.
        predicted: the same from recorded answers and the table.
        noise: standard error of the measured figure over it, from its turns taken apart.
        steps: compared.
        has_same_tokens: True where engine and recording delivered the same number of tokens.
    """

    routes: tuple[str, ...]
    rows: int
    setting: Setting
    measured: float
    predicted: float
    noise: float
    steps: int
    has_same_tokens: bool

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "routes": list(self.routes),
            "rows": self.rows,
            "setting": self.setting.label,
            "measured": self.measured,
            "predicted": self.predicted,
            "error": self.error,
            "noise": self.noise,
            "steps": self.steps,
            "has_same_tokens": self.has_same_tokens,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """How well the table predicts.

    Attributes:
        cells: all of them.
    """

    cells: tuple[Cell, ...]

    @property
    def mae(self) -> float:
        """Mean absolute relative error."""
        return sum(abs(cell.error) for cell in self.cells) / len(self.cells)

    @property
    def tau(self) -> float:
        """Kendall's tau of the ranking of Settings, over all pairs that share mix and load."""
        signs = [
            _sign(one.measured - other.measured) * _sign(one.predicted - other.predicted)
            for one, other in self.pairs
        ]
        return sum(signs) / len(signs) if signs else 0.0

    @property
    def pairs(self) -> list[tuple[Cell, Cell]]:
        """Cells that share mix and load."""
        return [
            (one, other)
            for one, other in combinations(self.cells, 2)
            if (one.routes, one.rows) == (other.routes, other.rows)
        ]

    @property
    def close_pairs(self) -> int:
        """How many pairs differ by less than two standard errors of their measured figures."""
        return sum(
            abs(math.log(one.measured / other.measured)) < 2 * math.hypot(one.noise, other.noise)
            for one, other in self.pairs
        )

    @property
    def failure(self) -> str | None:
        """Why no policy may be scored on the table; None where it may."""
        if self.mae > MOST_ERROR:
            return f"the mean absolute error of {self.mae:.1%} is above {MOST_ERROR:.0%}"
        if self.tau < LEAST_TAU:
            return f"Kendall's tau of {self.tau:.2f} is below {LEAST_TAU}"
        return None

    def lines(self) -> list[str]:
        """Return what it comes to, one sentence each."""
        same = sum(cell.has_same_tokens for cell in self.cells)
        return [
            f"Mean absolute error {self.mae:.1%}, at most {MOST_ERROR:.0%}; Kendall's tau of "
            f"Settings {self.tau:.2f}, at least {LEAST_TAU}.",
            f"{self.close_pairs} of {len(self.pairs)} pairs of Settings lie closer together than "
            "two standard errors of what was measured; they count like the others.",
            f"{same} of {len(self.cells)} cells delivered exactly the tokens of the recording.",
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "mae": self.mae,
            "tau": self.tau,
            "close_pairs": self.close_pairs,
            "failure": self.failure,
            "cells": [cell.to_dict() for cell in self.cells],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Which cells are run.

    Attributes:
        mixes: routes of each mix.
        loads: sequences in a batch; a multiple of the routes of every mix.
        settings: as policies name them.
        steps: of each cell in a turn, counting as ``measured`` does.
    """

    mixes: tuple[tuple[str, ...], ...] = MIXES
    loads: tuple[int, ...] = LOADS
    settings: tuple[Setting, ...] = SETTINGS
    steps: int = STEPS

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.mixes) * len(self.loads) * len(self.settings)


class CellRuns:
    """The cells on the engine, turn by turn."""

    def __init__(
        self,
        parts: Parts,
        prompts: Mapping[str, Sequence[Encoded]],
        max_tokens: int,
        cells: Cells,
        reference: Reference,
        on_cell: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over what is loaded.

        Args:
            parts: of the engine.
            prompts: those that are recorded.
            max_tokens: longest answer, as recorded.
            cells: which.
            reference: run between timed steps.
            on_cell: called after each cell in each turn.
        """
        field = Field(routes=tuple(prompts), drafter=parts.drafter)
        self._settings = [field.realised(arm) for arm in cells.settings]
        self._max_tokens = max_tokens
        self._steps = cells.steps
        self._on_cell = on_cell
        self._stands = [
            _Stand(parts, prompts, routes, rows, max_tokens, reference)
            for routes, rows in product(cells.mixes, cells.loads)
        ]
        self._turns = 0

    def turn(self) -> None:
        """Run every cell for its steps; another Setting begins each time."""
        shift = self._turns % len(self._settings)
        for stand in self._stands:
            for setting in (*self._settings[shift:], *self._settings[:shift]):
                stand.run(setting, self._steps)
                self._on_cell()
        self._turns += 1

    def against(self, recorded: Recorded, times: Timetable) -> Fidelity:
        """Replay the steps of all turns on a measured table."""
        cells = []
        for stand in self._stands:
            batch = ReplayedBatch(recorded.scripts, stand.rows_by_route, times, self._max_tokens)
            turns = stand.replayed(batch)
            cells += [_cell(stand, setting, turns[setting]) for setting in self._settings]
        return Fidelity(cells=tuple(cells))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPair:
    """The same step on the engine and in the replay.

    Attributes:
        tokens: delivered by the engine.
        seconds: it took, at the usual pace of the reference pass.
        predicted_tokens: delivered by the replay.
        predicted_s: by the table.
    """

    tokens: int
    seconds: float
    predicted_tokens: int
    predicted_s: float


class _Stand:
    """One mix and load with an engine and drafters of its own, and what it ran so far."""

    def __init__(
        self,
        parts: Parts,
        prompts: Mapping[str, Sequence[Encoded]],
        routes: tuple[str, ...],
        rows: int,
        max_tokens: int,
        reference: Reference,
    ) -> None:
        self._reference = reference
        self.routes = routes
        self.rows = rows
        self.rows_by_route = dict.fromkeys(routes, rows // len(routes))
        seat = parts.seated(rows, prompts, max_tokens)
        self._batch = LiveBatch(seat.engine(seat.drafters), prompts, self.rows_by_route, max_tokens)
        self._stretches: list[tuple[Setting, list[TimedStep]]] = []

    def run(self, setting: Setting, num: int) -> None:
        """Do steps until so many were counted."""
        plan, steps = self._plan(setting), list[TimedStep]()
        while len(_counted(steps)) < num:
            steps.append(self._reference.timed(partial(self._batch.step, plan)))
        self._stretches.append((setting, steps))

    def replayed(self, batch: Batch) -> dict[Setting, list[list[StepPair]]]:
        """Repeat the steps on a fresh batch; return the counted ones by Setting and turn."""
        turns: dict[Setting, list[list[StepPair]]] = defaultdict(list)
        for setting, steps in self._stretches:
            again = [batch.step(self._plan(setting)) for _ in steps]
            turns[setting].append(
                [
                    self._pair(steps[place], again[place])
                    for place in _counted(steps)
                    if not again[place].prefill_tokens
                ]
            )
        return turns

    def _pair(self, timed: TimedStep, predicted: DecodeStep) -> StepPair:
        step, slowness = timed.step, timed.pace_s / self._reference.usual_s
        return StepPair(
            tokens=_tokens(step),
            seconds=step.step_s / slowness,
            predicted_tokens=_tokens(predicted),
            predicted_s=predicted.step_s,
        )

    def _plan(self, setting: Setting) -> dict[str, Setting]:
        return dict.fromkeys(self.routes, setting)


def _counted(steps: Sequence[TimedStep]) -> list[int]:
    """Return the places of the steps that count: none with prefill, none that follows one."""
    reading = [bool(timed.step.prefill_tokens) for timed in steps]
    return [
        place for place in range(1, len(steps)) if not reading[place] and not reading[place - 1]
    ]


def _cell(stand: _Stand, setting: Setting, turns: Sequence[Sequence[StepPair]]) -> Cell:
    pairs = [pair for turn in turns for pair in turn]
    tokens = sum(pair.tokens for pair in pairs)
    predicted = sum(pair.predicted_tokens for pair in pairs)
    predicted_s = sum(pair.predicted_s for pair in pairs)
    slowness = [slowness_of(turn) for turn in turns]
    return Cell(
        routes=stand.routes,
        rows=stand.rows,
        setting=setting,
        measured=tokens / (predicted_s * slowness_of(pairs)),
        predicted=predicted / predicted_s,
        noise=float(np.std(slowness) / np.mean(slowness) / math.sqrt(max(1, len(turns) - 1))),
        steps=len(pairs),
        has_same_tokens=tokens == predicted,
    )


def slowness_of(pairs: Sequence[StepPair]) -> float:
    """Return measured over predicted seconds, each step at the 25th percentile of steps like it.

    Steps that should take the same are alike: the table's figures are such percentiles too.
    """
    ordered = sorted(pairs, key=lambda pair: pair.predicted_s)
    groups = np.array_split(np.arange(len(ordered)), max(1, len(ordered) // LIKE_STEPS))
    found_s = 0.0
    for group in groups:
        predicted = np.array([ordered[place].predicted_s for place in group])
        ratios = np.array([ordered[place].seconds for place in group]) / predicted
        found_s += float(predicted.sum() * np.quantile(ratios, QUANTILE))
    return found_s / sum(pair.predicted_s for pair in pairs)


def _tokens(step: DecodeStep) -> int:
    return sum(group.tokens for group in step.groups)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
