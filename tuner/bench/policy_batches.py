"""Batches that part A times: sequences of ordinary text that are decoded in one thread.

A batch that is timed in every turn stays in an engine of its own: its prompts are read once. Each
timed step stands between two passes of a reference, which say how fast the machine is just then.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from collectors.records import MAX_DRAFT_LENGTH, DecodeStep, Method, Plan, Setting
from policy.simulate.calibrated import RoundTime, VerifyTime
from policy.simulate.closed_loop import Batch
from policy.simulate.engine import ARMS
from policy.simulate.profiles import Drafting
from policy.simulate.worlds import MAX_DEPTH
from tuner.bench.policy_engine import Parts, greedy, step_after
from tuner.engine.drafters.base import NO_DRAFT, Draft, DraftAsk, Drafter, DrafterBase
from tuner.engine.loading import LoadedEngine
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.request import EngineRequest

POSITIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Positions of a target pass; a batch is timed at those between its rows and what it can draft."""

DEPTHS = tuple(sorted({arm.k for arm in ARMS if arm.k}))
QUANTILE = 0.25
_MOST_TOKENS = 200
_MOST_DRAFTED_TOKENS = 800
"""Longest answers of a batch whose drafts are timed: some of them are accepted."""

_SPARE_TOKENS = 32
"""Room behind the longest answer, so that no draft is cut for want of it."""

_REFERENCE_ROWS = 4
_REFERENCE_CONTEXT = 128
_REFERENCE_WARM = 3
_ROUTE = "calibration"
_STRIDE = 37
"""Tokens by which the prompts of a batch are shifted against each other."""

FILLING = Setting(method=Method.SUFFIX, k=MAX_DRAFT_LENGTH)
"""The Setting under which filled drafts are asked for; its own drafter is not loaded beside."""


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


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step, and how fast the machine was.

    Attributes:
        step: as the engine journalled it.
        pace_s: mean of the reference passes before and after it, in seconds.
    """

    step: DecodeStep
    pace_s: float

    def at(self, usual_s: float) -> DecodeStep:
        """Return the step as it is where a reference pass takes so many seconds."""
        ratio, step = usual_s / self.pace_s, self.step
        return replace(
            step,
            verify_s=step.verify_s * ratio,
            sample_s=step.sample_s * ratio,
            other_s=step.other_s * ratio,
            drafts=tuple(replace(cost, seconds=cost.seconds * ratio) for cost in step.drafts),
        )


class Reference:
    """A target pass that is always the same, run between timed steps.

    What else runs takes caches and memory from a step, and so CPU time, by a factor that changes
    within seconds. A step over the passes next to it does not.
    """

    def __init__(self, parts: Parts) -> None:
        """Lay out the pass, and run it until it is warm."""
        self._decoder = parts.target.decoder
        self._slots = self._decoder.new_slots(_REFERENCE_ROWS, _REFERENCE_CONTEXT + 1)
        spans = [
            Span(slot=slot, start=_REFERENCE_CONTEXT, token_ids=[1])
            for slot in range(_REFERENCE_ROWS)
        ]
        self._batch = lay_out(spans, self._decoder.mask_kind)
        self._taken = [self._pass() for _ in range(_REFERENCE_WARM)][-1:]

    def timed(self, do_step: Callable[[], DecodeStep]) -> TimedStep:
        """Do a step; it follows the reference pass after the last one."""
        step = do_step()
        before, after = self._taken[-1], self._pass()
        self._taken.append(after)
        return TimedStep(step, (before + after) / 2)

    @property
    def usual_s(self) -> float:
        """What the pass takes: the 25th percentile of all."""
        return typical(self._taken)

    @torch.inference_mode()
    def _pass(self) -> float:
        started = time.thread_time()
        self._decoder.logits(self._decoder.forward(self._batch, self._slots, None))
        return time.thread_time() - started


class PacedBatch:
    """A batch whose steps take what they take at the pace of a measured table."""

    def __init__(self, batch: Batch, reference: Reference, usual_s: float) -> None:
        """Take over a batch.

        Args:
            batch: on the engine.
            reference: run between its steps.
            usual_s: what the reference pass took when the table was measured.
        """
        self._batch = batch
        self._reference = reference
        self._usual_s = usual_s

    def step(self, settings: Mapping[str, Setting]) -> DecodeStep:
        """Do one step with these Settings by route."""
        return self._reference.timed(partial(self._batch.step, settings)).at(self._usual_s)


class Prompts:
    """Starts batches on the same weights."""

    def __init__(self, parts: Parts, text: Sequence[int], reference: Reference) -> None:
        """Take over what is loaded.

        Args:
            parts: of the engine.
            text: token ids that prompts are cut from, repeated where they end.
            reference: run between timed steps.
        """
        self.parts = parts
        self.reference = reference
        self._text = text
        self._names = itertools.count()

    @property
    def ways(self) -> dict[Drafting, Method]:
        """What drafts by each way that is timed."""
        return {Drafting.LOOKUP: Method.PROMPT_LOOKUP, Drafting.MODEL: self.parts.drafter}

    def seated(
        self, drafters: Mapping[Method, Drafter], rows: int, context: int, most_tokens: int
    ) -> LoadedEngine:
        """Return an engine with room for one batch, which runs in it from then on."""
        room = context + most_tokens + _SPARE_TOKENS
        limits = replace(self.parts.settings.limits, max_rows=rows, max_context_tokens=room)
        engine = self.parts.engine(drafters, limits)
        self.start(engine, rows, context, most_tokens)
        return engine

    @contextmanager
    def running(self, engine: LoadedEngine, rows: int, context: int) -> Iterator[None]:
        """Let a batch run whose rows hold so many tokens; cancel it at the end."""
        names = self.start(engine, rows, context, _MOST_TOKENS)
        yield
        for name in names:
            engine.core.cancel(name)

    def start(self, engine: LoadedEngine, rows: int, context: int, most_tokens: int) -> list[str]:
        """Submit a batch whose rows hold so many tokens, and read its prompts."""
        names = [str(next(self._names)) for _ in range(rows)]
        for place, name in enumerate(names):
            engine.core.submit(
                EngineRequest(
                    request_id=name,
                    prompt_ids=self._prompt(place, context),
                    sampling=greedy(most_tokens, ignore_eos=True),
                    route=_ROUTE,
                )
            )
        prefilled = 0
        while prefilled < rows * context:
            prefilled += do_step(engine).prefill_tokens
        return names

    def _prompt(self, place: int, length: int) -> tuple[int, ...]:
        """Cut a prompt out of the text, another one for each place."""
        endless = itertools.cycle(self._text)
        return tuple(itertools.islice(endless, _STRIDE * place, _STRIDE * place + length))


class TimedPasses:
    """A batch and the target passes timed on it."""

    def __init__(self, prompts: Prompts, rows: int, context: int) -> None:
        """Read the prompts."""
        taps = {tap for drafter in prompts.parts.drafters.values() for tap in drafter.taps}
        self._filler = Filler(tuple(sorted(taps)))
        self._engine = prompts.seated({FILLING.method: self._filler}, rows, context, _MOST_TOKENS)
        self._rows = rows
        self._reference = prompts.reference
        self._taken: dict[int, list[TimedStep]] = defaultdict(list)
        set_plan(self._engine, FILLING)

    def turn(self, repeats: int) -> None:
        """Time each number of positions a few times, in turns."""
        for _, count in itertools.product(range(repeats), _positions(self._rows)):
            self._filler.total = count - self._rows
            timed = self._reference.timed(partial(do_step, self._engine))
            self._taken[timed.step.positions].append(timed)

    def times(self) -> Iterator[VerifyTime]:
        """Return what was measured, by rising positions."""
        usual_s = self._reference.usual_s
        for positions, taken in sorted(self._taken.items()):
            yield VerifyTime(
                rows=self._rows,
                positions=positions,
                context_tokens=float(np.mean([each.step.context_tokens for each in taken])),
                seconds=usual_s
                * typical([(each.step.step_s - each.step.draft_s) / each.pace_s for each in taken]),
            )


class TimedRounds:
    """A batch with drafters of its own, and their draft rounds timed on it in a steady state."""

    def __init__(self, prompts: Prompts, rows: int, context: int) -> None:
        """Read the prompts."""
        methods = tuple(prompts.ways.values())
        parts = prompts.parts.seat(replace(prompts.parts.settings, methods=methods))
        self._engine = prompts.seated(parts.drafters, rows, context, _MOST_DRAFTED_TOKENS)
        self._rows = rows
        self._ways = prompts.ways
        self._reference = prompts.reference
        self._taken: dict[tuple[Drafting, int], list[float]] = defaultdict(list)

    def turn(self, repeats: int) -> None:
        """Time each way at each depth a few times, by rising depth.

        A round reads what the last one got accepted, so the first one, which catches up, is left
        out, and none follows a much longer one.
        """
        for (way, method), _ in itertools.product(self._ways.items(), range(repeats)):
            set_plan(self._engine, chain(method, DEPTHS[0]))
            do_step(self._engine)
            for depth in DEPTHS:
                set_plan(self._engine, chain(method, depth))
                timed = self._reference.timed(partial(do_step, self._engine))
                self._taken[way, depth].append(timed.step.draft_s / timed.pace_s)

    def times(self) -> Iterator[RoundTime]:
        """Return what was measured."""
        for (way, depth), paces in self._taken.items():
            seconds = self._reference.usual_s * typical(paces)
            yield RoundTime(way=way, rows=self._rows, depth=depth, seconds=seconds)


def chain(method: Method, depth: int) -> Setting:
    """Return a Setting that drafts chains."""
    return Setting.from_dict({"method": method.value, "k": depth})


def set_plan(engine: LoadedEngine, setting: Setting) -> None:
    """Put one Setting into force for all."""
    engine.plan.replace(Plan(default=setting))


def do_step(engine: LoadedEngine) -> DecodeStep:
    """Do a step and return it."""
    before = engine.journal.last_seq
    engine.core.step()
    return step_after(engine, before)


def typical(seconds: Sequence[float]) -> float:
    """Return the 25th percentile."""
    return float(np.quantile(seconds, QUANTILE))


def _positions(rows: int) -> list[int]:
    """Return the positions at which a batch is timed: what it can draft, up to the arms' depth."""
    deepest = MAX_DRAFT_LENGTH if rows == 1 else MAX_DEPTH
    return [count for count in POSITIONS if rows <= count <= rows * (1 + deepest)]
