"""Part A: what steps of the real engine cost, in thread-CPU time on one thread.

Every shape is timed once in each of several turns, beside a reference pass, so that whatever
changes on the machine changes for all of them; the cells that check the table run in the same
turns. A figure is the 25th percentile of at least 7 repeats, kept as measured, also where more
positions took less time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from collectors.records import OFF, Method
from policy.simulate.calibrated import Calibration
from policy.simulate.worlds import MAX_DEPTH
from tuner.bench.policy_batches import (
    Prompts,
    Reference,
    TimedPasses,
    TimedRounds,
    chain,
    do_step,
    set_plan,
    typical,
)
from tuner.bench.policy_engine import Parts
from tuner.engine.loading import LoadedEngine

ROWS = (1, 2, 4, 8, 16)
CONTEXTS = (64, 256, 1024)
MOST_CONTEXT_TOKENS = 8192
"""Batches that would hold more KV entries are left out: reading prompts would take minutes."""

TURNS = 7
REPEATS = 1
DRAFT_CONTEXT = 128
READ_REPEATS = 3
TAX_ROWS = (1, 8)
TAX_PAIRS = 21
SWITCH_STEPS = 24
SWITCH_REPEATS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchTime:
    """The first draft after plain steps against a steady one.

    Attributes:
        method: drafting method that was switched on.
        plain_steps: steps before it.
        seconds: the first round's time less a steady one's.
    """

    method: Method
    plain_steps: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A calibration and what has no place in the profile.

    Attributes:
        calibration: the times.
        switches: what switching drafting on costs.
        reference_s: thread-CPU seconds of the reference pass that the times are put to.
        cpu_s: thread-CPU seconds of the whole measurement.
    """

    calibration: Calibration
    switches: tuple[SwitchTime, ...]
    reference_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """What is measured.

    Attributes:
        rows: sequences in a batch.
        contexts: KV entries of each.
        repeats: steps of each shape in a turn.
        turns: times that all of it is measured.
    """

    rows: tuple[int, ...] = ROWS
    contexts: tuple[int, ...] = CONTEXTS
    repeats: int = REPEATS
    turns: int = TURNS

    def batches(self) -> list[tuple[int, int]]:
        """Return rows and context of each batch."""
        every = itertools.product(self.rows, self.contexts)
        return [(rows, each) for rows, each in every if rows * each <= MOST_CONTEXT_TOKENS]


class Bench:
    """Measures engines on the same weights, turn by turn."""

    def __init__(
        self,
        parts: Parts,
        text: Sequence[int],
        shapes: Shapes,
        reference: Reference,
        on_batch: Callable[[], None],
    ) -> None:
        """Read the prompts of every batch.

        Args:
            parts: of the engine.
            text: token ids that prompts are cut from, repeated where they end.
            shapes: what is measured.
            reference: run between timed steps.
            on_batch: called as often as ``num_batches`` says.
        """
        started = time.thread_time()
        self._parts = parts
        self._prompts = Prompts(parts, text, reference)
        self._shapes = shapes
        self._on_batch = on_batch
        self._passes = [TimedPasses(self._prompts, *batch) for batch in shapes.batches()]
        self._rounds = [TimedRounds(self._prompts, rows, DRAFT_CONTEXT) for rows in shapes.rows]
        self._cpu_s = time.thread_time() - started

    def turn(self) -> None:
        """Time every target pass and draft round a few times."""
        started = time.thread_time()
        for passes in self._passes:
            passes.turn(self._shapes.repeats)
            self._on_batch()
        for rounds in self._rounds:
            rounds.turn(self._shapes.repeats)
            self._on_batch()
        self._cpu_s += time.thread_time() - started

    def measured(self) -> Measured:
        """Time what needs no turns, and return all of it."""
        started = time.thread_time()
        engine = self._parts.engine(self._parts.drafters)
        ways = self._prompts.ways
        calibration = Calibration(
            verify=tuple(each for timed in self._passes for each in timed.times()),
            rounds=tuple(each for timed in self._rounds for each in timed.times()),
            catch_up_s={way: self._reading_s(engine, method) for way, method in ways.items()},
            off_tax_ratio=self._off_tax_ratio(engine),
        )
        switches = tuple(self._switch(engine, method) for method in ways.values())
        self._on_batch()
        return Measured(
            calibration=calibration,
            switches=switches,
            reference_s=self._prompts.reference.usual_s,
            cpu_s=self._cpu_s + time.thread_time() - started,
        )

    def _reading_s(self, engine: LoadedEngine, method: Method) -> float:
        """Return what reading a token takes: the slope of first rounds over the prompt's length."""
        set_plan(engine, chain(method, 1))
        lengths = (min(self._shapes.contexts), max(self._shapes.contexts))
        firsts: dict[int, list[float]] = {length: [] for length in lengths}
        for _, length in itertools.product(range(READ_REPEATS), lengths):
            with self._prompts.running(engine, 1, length):
                firsts[length].append(do_step(engine).draft_s)
        low, high = (typical(firsts[length]) for length in lengths)
        return max(0.0, (high - low) / (lengths[1] - lengths[0]))

    def _switch(self, engine: LoadedEngine, method: Method) -> SwitchTime:
        """Time the first round after plain steps."""
        firsts, steadies = [], []
        for _ in range(SWITCH_REPEATS):
            with self._prompts.running(engine, 1, DRAFT_CONTEXT):
                set_plan(engine, OFF)
                for _ in range(SWITCH_STEPS):
                    do_step(engine)
                set_plan(engine, chain(method, MAX_DEPTH // 2))
                seconds = [do_step(engine).draft_s for _ in range(4)]
            firsts.append(seconds[0])
            steadies.append(min(seconds[1:]))
        extra = typical(firsts) - typical(steadies)
        return SwitchTime(method=method, plain_steps=SWITCH_STEPS, seconds=max(0.0, extra))

    def _off_tax_ratio(self, engine: LoadedEngine) -> float:
        """Compare plain steps with and without drafters loaded, in turns; mean over batches."""
        engines = (engine, self._parts.engine({}))
        return float(np.mean([self._taxed(engines, rows) for rows in TAX_ROWS])) - 1

    def _taxed(self, engines: tuple[LoadedEngine, LoadedEngine], rows: int) -> float:
        times: tuple[list[float], list[float]] = ([], [])
        for engine in engines:
            set_plan(engine, OFF)
        with (
            self._prompts.running(engines[0], rows, DRAFT_CONTEXT),
            self._prompts.running(engines[1], rows, DRAFT_CONTEXT),
        ):
            for number in range(TAX_PAIRS):
                for place in (0, 1) if number % 2 else (1, 0):
                    times[place].append(do_step(engines[place]).step_s)
        return typical(times[0]) / typical(times[1])


def num_batches(shapes: Shapes) -> int:
    """Return how often ``on_batch`` will be called."""
    return shapes.turns * (len(shapes.batches()) + len(shapes.rows)) + 1
