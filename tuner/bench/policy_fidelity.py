"""The gate of part A: whether recorded answers on the measured table predict the real engine.

Each cell is a mix of routes, a load and a Setting whose steps were never timed before. The engine
runs the Settings of a mix and load in turns, for some seconds each, so that a machine that slows
down for a while does not reorder them; the same number of steps is then replayed. Where the error
is too large or Settings come out in another order, no policy may be scored on the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import median

from collectors.records import OFF, DecodeStep, Setting
from policy.simulate.closed_loop import Batch, Field
from policy.simulate.engine import lookup, model
from policy.simulate.replayed import ReplayedBatch, Timetable
from tuner.bench.policy_engine import LiveBatch, Parts
from tuner.bench.policy_traces import Recorded
from tuner.bench.questions import Encoded

MOST_ERROR = 0.10
LEAST_TAU = 0.9

MIXES = (("code_edit", "json_extract", "rag_answer", "chat"), ("rag_answer", "chat"))
LOADS = (4, 8, 16)
SETTINGS = (OFF, lookup(4), model(1), model(5))
CELL_S = 2.4
TURNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One mix, load and Setting.

    Attributes:
        routes: of the mix, with the same rows each.
        rows: sequences in the batch.
        setting: of all.
        measured: tokens per CPU-second on the engine in the median turn, steps with prefill left
            out.
        predicted: the same from recorded answers and the table.
        steps: compared.
        has_same_tokens: True where engine and recording delivered the same number of tokens.
    """

    routes: tuple[str, ...]
    rows: int
    setting: Setting
    measured: float
    predicted: float
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
            for one, other in combinations(self.cells, 2)
            if (one.routes, one.rows) == (other.routes, other.rows)
        ]
        return sum(signs) / len(signs) if signs else 0.0

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
            f"{same} of {len(self.cells)} cells delivered exactly the tokens of the recording.",
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "mae": self.mae,
            "tau": self.tau,
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
        seconds: CPU-seconds of each cell at least, over all turns, steps with prefill left out.
    """

    mixes: tuple[tuple[str, ...], ...] = MIXES
    loads: tuple[int, ...] = LOADS
    settings: tuple[Setting, ...] = SETTINGS
    seconds: float = CELL_S

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.mixes) * len(self.loads) * len(self.settings)


def check(
    parts: Parts,
    prompts: Mapping[str, Sequence[Encoded]],
    recorded: Recorded,
    times: Timetable,
    max_tokens: int,
    cells: Cells | None = None,
    on_cell: Callable[[], None] = lambda: None,
) -> Fidelity:
    """Run every cell on the engine and on the recording.

    Args:
        parts: of the engine.
        prompts: those that were recorded.
        recorded: their answers and marks.
        times: the measured table.
        max_tokens: longest answer, as recorded.
        cells: which; None for all that is promised.
        on_cell: called after each.
    """
    chosen = cells or Cells()
    engine = parts.engine(parts.drafters)
    field = Field(routes=tuple(prompts), drafter=parts.drafter)
    found = []
    for routes in chosen.mixes:
        for rows in chosen.loads:
            by_route = {route: rows // len(routes) for route in routes}
            ran: dict[Setting, list[_Turn]] = {arm: [] for arm in chosen.settings}
            for turn, (arm, turns) in product(range(TURNS), ran.items()):
                plan = dict.fromkeys(routes, field.realised(arm))
                live = LiveBatch(engine, prompts, by_route, max_tokens)
                steps = _decoded(live, plan, chosen.seconds / TURNS)
                live.close()
                again = ReplayedBatch(recorded.scripts, by_route, times, max_tokens)
                turns.append(_Turn(_sums(steps), _sums([again.step(plan) for _ in steps])))
                if turn == TURNS - 1:
                    found.append(_cell(routes, rows, field.realised(arm), turns))
                    on_cell()
    return Fidelity(cells=tuple(found))


def _decoded(batch: Batch, plan: Mapping[str, Setting], seconds: float) -> list[DecodeStep]:
    """Do steps until those without prefill have taken so many seconds."""
    steps: list[DecodeStep] = []
    left_s = seconds
    while left_s > 0:
        steps.append(batch.step(plan))
        left_s -= 0.0 if steps[-1].prefill_tokens else steps[-1].step_s
    return steps


@dataclass(frozen=True, slots=True)
class _Turn:
    measured: _Sums
    predicted: _Sums


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the steps without prefill came to."""

    steps: int
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def _cell(routes: tuple[str, ...], rows: int, setting: Setting, turns: Sequence[_Turn]) -> Cell:
    return Cell(
        routes=routes,
        rows=rows,
        setting=setting,
        measured=median(turn.measured.rate for turn in turns),
        predicted=median(turn.predicted.rate for turn in turns),
        steps=sum(turn.measured.steps for turn in turns),
        has_same_tokens=all(turn.measured.tokens == turn.predicted.tokens for turn in turns),
    )


def _sums(steps: Sequence[DecodeStep]) -> _Sums:
    plain = [step for step in steps if not step.prefill_tokens]
    return _Sums(
        steps=len(plain),
        tokens=sum(group.tokens for step in plain for group in step.groups),
        seconds=sum(step.step_s for step in plain),
    )


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
