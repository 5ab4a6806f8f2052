"""Part A: what steps of the real engine cost, in thread-CPU time on one thread.

Shapes take turns within each batch, so that whatever changes on the machine changes for all of
them; a figure is the 25th percentile of at least 7 repeats. Times are kept as measured, also where
more positions took less time.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from collectors.records import MAX_DRAFT_LENGTH, OFF, DecodeStep, Method, Plan, Setting
from policy.simulate.calibrated import Calibration, RoundTime, VerifyTime
from policy.simulate.engine import ARMS
from policy.simulate.profiles import Drafting
from policy.simulate.worlds import MAX_DEPTH
from tuner.bench.policy_engine import Parts, greedy, step_after
from tuner.engine.drafters.base import NO_DRAFT, Draft, DraftAsk, DrafterBase
from tuner.engine.loading import LoadedEngine
from tuner.engine.request import EngineRequest

POSITIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Positions of a target pass; a batch is timed at those between its rows and what it can draft."""

ROWS = (1, 2, 4, 8, 16)
CONTEXTS = (64, 256, 1024)
MOST_CONTEXT_TOKENS = 8192
"""Batches that would hold more KV entries are left out: reading prompts would take minutes."""

REPEATS = 7
QUANTILE = 0.25
DEPTHS = tuple(sorted({arm.k for arm in ARMS if arm.k}))
DRAFT_CONTEXT = 128
TAX_ROWS = (1, 8)
TAX_PAIRS = 21
SWITCH_STEPS = 24
_MOST_TOKENS = 200
_ROUTE = "calibration"
_STRIDE = 37
"""Tokens by which the prompts of a batch are shifted against each other."""

FILLING = Setting(method=Method.SUFFIX, k=MAX_DRAFT_LENGTH)
"""The Setting under which filled drafts are asked for; its own drafter is not loaded beside."""


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
        cpu_s: thread-CPU seconds of the whole measurement.
    """

    calibration: Calibration
    switches: tuple[SwitchTime, ...]
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """What is measured.

    Attributes:
        rows: sequences in a batch.
        contexts: KV entries of each.
        repeats: steps of each shape.
    """

    rows: tuple[int, ...] = ROWS
    contexts: tuple[int, ...] = CONTEXTS
    repeats: int = REPEATS

    def batches(self) -> list[tuple[int, int]]:
        """Return rows and context of each batch."""
        every = itertools.product(self.rows, self.contexts)
        return [(rows, each) for rows, each in every if rows * each <= MOST_CONTEXT_TOKENS]


class Filler(DrafterBase):
    """Drafts as many tokens as it is told, of no meaning: verifying them costs what others cost."""

    method = FILLING.method
    max_k = MAX_DRAFT_LENGTH

    def __init__(self, taps: tuple[int, ...]) -> None:
        """Draft nothing, but have the target keep what the drafters would read of it."""
        self.taps = taps
        self.total = 0

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Share the total out over the rows, as evenly as can be."""
        each, more = divmod(self.total, len(asks))
        lengths = [each + (place < more) for place in range(len(asks))]
        return [Draft(token_ids=(1,) * length) if length else NO_DRAFT for length in lengths]

    def move(self, source: int, target: int) -> None:
        """Hold nothing to carry over."""

    def release(self, slot: int) -> None:
        """Hold nothing to forget."""


class Bench:
    """Measures one engine after the other on the same weights."""

    def __init__(
        self, parts: Parts, text: Sequence[int], shapes: Shapes, on_batch: Callable[[], None]
    ) -> None:
        """Take over what is loaded.

        Args:
            parts: of the engine.
            text: token ids that prompts are cut from, repeated where they end.
            shapes: what is measured.
            on_batch: called after each batch.
        """
        self._parts = parts
        self._text = text
        self._shapes = shapes
        self._on_batch = on_batch
        self._names = itertools.count()

    def verify(self) -> Iterator[VerifyTime]:
        """Time target passes."""
        taps = {tap for drafter in self._parts.drafters.values() for tap in drafter.taps}
        filler = Filler(tuple(sorted(taps)))
        engine = self._parts.engine({FILLING.method: filler})
        _set_plan(engine, FILLING)
        for rows, context in self._shapes.batches():
            yield from self._verify_batch(engine, filler, rows, context)
            self._on_batch()

    def rounds(self) -> Iterator[RoundTime]:
        """Time draft rounds of both ways in a steady state, depths in turns."""
        engine = self._parts.engine(self._parts.drafters)
        for way, method in self._ways().items():
            for rows in self._shapes.rows:
                yield from self._draft_batch(engine, way, method, rows)
                self._on_batch()

    def catch_up(self) -> dict[Drafting, float]:
        """Time what a drafter takes to read a token: its first round by length of the prompt."""
        engine = self._parts.engine(self._parts.drafters)
        return {way: self._reading_s(engine, method) for way, method in self._ways().items()}

    def switches(self) -> Iterator[SwitchTime]:
        """Time the first round after plain steps."""
        engine = self._parts.engine(self._parts.drafters)
        for method in self._ways().values():
            setting = _setting(method, MAX_DEPTH // 2)
            firsts, steadies = [], []
            for _ in range(self._shapes.repeats):
                with self._running(engine, 1, DRAFT_CONTEXT):
                    _set_plan(engine, OFF)
                    _steps(engine, SWITCH_STEPS)
                    _set_plan(engine, setting)
                    seconds = [step.draft_s for step in _steps(engine, 4)]
                firsts.append(seconds[0])
                steadies.append(min(seconds[1:]))
            extra = _typical(firsts) - _typical(steadies)
            yield SwitchTime(method=method, plain_steps=SWITCH_STEPS, seconds=max(0.0, extra))

    def off_tax_ratio(self) -> float:
        """Compare plain steps with and without drafters loaded, in turns; mean over batches."""
        engines = (self._parts.engine(self._parts.drafters), self._parts.engine({}))
        return float(np.mean([self._taxed(engines, rows) for rows in TAX_ROWS])) - 1

    def _ways(self) -> dict[Drafting, Method]:
        return {Drafting.LOOKUP: Method.PROMPT_LOOKUP, Drafting.MODEL: self._parts.drafter}

    def _verify_batch(
        self, engine: LoadedEngine, filler: Filler, rows: int, context: int
    ) -> Iterator[VerifyTime]:
        wanted = [count for count in POSITIONS if rows <= count <= rows * (1 + MAX_DRAFT_LENGTH)]
        wanted = [count for count in wanted if count <= rows * (1 + MAX_DEPTH) or rows == 1]
        taken: dict[int, list[DecodeStep]] = defaultdict(list)
        filler.total = 0
        with self._running(engine, rows, context):
            for _, count in itertools.product(range(self._shapes.repeats), wanted):
                filler.total = count - rows
                (step,) = _steps(engine, 1)
                taken[step.positions].append(step)
        for positions, steps in sorted(taken.items()):
            yield VerifyTime(
                rows=rows,
                positions=positions,
                context_tokens=float(np.mean([step.context_tokens for step in steps])),
                seconds=_typical([step.step_s - step.draft_s for step in steps]),
            )

    def _draft_batch(
        self, engine: LoadedEngine, way: Drafting, method: Method, rows: int
    ) -> Iterator[RoundTime]:
        taken: dict[int, list[float]] = defaultdict(list)
        with self._running(engine, rows, DRAFT_CONTEXT):
            _set_plan(engine, _setting(method, 1))
            _steps(engine, 1)
            for _, depth in itertools.product(range(self._shapes.repeats), DEPTHS):
                _set_plan(engine, _setting(method, depth))
                (step,) = _steps(engine, 1)
                taken[depth].append(step.draft_s)
        for depth, seconds in taken.items():
            yield RoundTime(way=way, rows=rows, depth=depth, seconds=_typical(seconds))

    def _reading_s(self, engine: LoadedEngine, method: Method) -> float:
        """Return the slope of the first round's time over the tokens read in it."""
        _set_plan(engine, _setting(method, 1))
        firsts: dict[int, list[float]] = defaultdict(list)
        for _, context in itertools.product(range(3), self._shapes.contexts):
            with self._running(engine, 1, context):
                firsts[context].append(_steps(engine, 1)[0].draft_s)
        lengths = sorted(firsts)
        seconds = [_typical(firsts[length]) for length in lengths]
        slope = (seconds[-1] - seconds[0]) / (lengths[-1] - lengths[0])
        return max(0.0, slope)

    def _taxed(self, engines: tuple[LoadedEngine, LoadedEngine], rows: int) -> float:
        times: tuple[list[float], list[float]] = ([], [])
        for engine in engines:
            _set_plan(engine, OFF)
        with (
            self._running(engines[0], rows, DRAFT_CONTEXT),
            self._running(engines[1], rows, DRAFT_CONTEXT),
        ):
            for number in range(TAX_PAIRS):
                for place in (0, 1) if number % 2 else (1, 0):
                    times[place].append(_steps(engines[place], 1)[0].step_s)
        return _typical(times[0]) / _typical(times[1])

    @contextmanager
    def _running(self, engine: LoadedEngine, rows: int, context: int) -> Iterator[None]:
        """Let a batch run whose rows hold so many tokens; cancel it at the end."""
        names = [str(next(self._names)) for _ in range(rows)]
        for place, name in enumerate(names):
            engine.core.submit(
                EngineRequest(
                    request_id=name,
                    prompt_ids=self._prompt(place, context),
                    sampling=greedy(_MOST_TOKENS, ignore_eos=True),
                    route=_ROUTE,
                )
            )
        prefilled = 0
        while prefilled < rows * context:
            prefilled += _steps(engine, 1)[0].prefill_tokens
        yield
        for name in names:
            engine.core.cancel(name)

    def _prompt(self, place: int, length: int) -> tuple[int, ...]:
        """Cut a prompt out of the text, another one for each place."""
        endless = itertools.cycle(self._text)
        return tuple(itertools.islice(endless, _STRIDE * place, _STRIDE * place + length))


def measure(
    parts: Parts,
    text: Sequence[int],
    shapes: Shapes | None = None,
    on_batch: Callable[[], None] = lambda: None,
) -> Measured:
    """Measure everything; takes some two minutes of one core with the bundled model.

    Args:
        parts: of the engine.
        text: token ids of ordinary text, that prompts are cut from.
        shapes: what is measured; None for all that is promised.
        on_batch: called as often as ``num_batches`` says.
    """
    started = time.thread_time()
    bench = Bench(parts, text, shapes or Shapes(), on_batch)
    calibration = Calibration(
        verify=tuple(bench.verify()),
        rounds=tuple(bench.rounds()),
        catch_up_s=bench.catch_up(),
        off_tax_ratio=bench.off_tax_ratio(),
    )
    switches = tuple(bench.switches())
    on_batch()
    return Measured(calibration=calibration, switches=switches, cpu_s=time.thread_time() - started)


def num_batches(shapes: Shapes | None = None) -> int:
    """Return how often ``on_batch`` will be called."""
    chosen = shapes or Shapes()
    return len(chosen.batches()) + 2 * len(chosen.rows) + 1


def _typical(seconds: Sequence[float]) -> float:
    return float(np.quantile(seconds, QUANTILE))


def _setting(method: Method, depth: int) -> Setting:
    return Setting.from_dict({"method": method.value, "k": depth})


def _set_plan(engine: LoadedEngine, setting: Setting) -> None:
    engine.plan.replace(Plan(default=setting))


def _steps(engine: LoadedEngine, num: int) -> list[DecodeStep]:
    taken = []
    for _ in range(num):
        before = engine.journal.last_seq
        engine.core.step()
        taken.append(step_after(engine, before))
    return taken
