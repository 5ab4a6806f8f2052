"""`spectuner bench engine --methods`: every drafting method on real questions, in one run.

Every arm answers the same questions; each of its steps is timed beside a plain step of an engine
without drafters on the same weights. One process, one set of weights, float32 target.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collectors.records import OFF, Method, Setting
from tuner.bench.arms import DEFAULT_TREES, WITHOUT_WEIGHTS, TreeShape, arms, not_loaded
from tuner.bench.figures import Sums, sums_of
from tuner.bench.method_report import LONG_CATEGORIES, ArmRun, MethodReport, Sampled, Source
from tuner.bench.questions import (
    Encoded,
    Question,
    encode,
    fitting,
    of_each,
    read_questions,
    spread,
)
from tuner.bench.resident import PeakMemory
from tuner.bench.turns import Turns
from tuner.demo.traffic import bundled_traffic
from tuner.engine.drafters.registry import load_drafters
from tuner.engine.limits import EngineLimits
from tuner.engine.loading import LoadedEngine, build_engine, load_target
from tuner.engine.model.memory import keep_freed_memory, return_freed_memory
from tuner.engine.settings import EngineSettings
from tuner.errors import BadRequest

COPY_ROUTES = ("code_edit", "json_extract", "rag_answer")
"""Routes of the demo whose answers repeat much of their prompt."""

COPYING_METHODS = (Method.OFF, *WITHOUT_WEIGHTS)
"""Measured on more questions whose answers repeat their prompt, since that is what they live on."""

MAX_CONTEXT = 2048
_ENTRIES_BEYOND = 64
"""KV entries behind the last token, for the trees of a last step."""

_NO_LIMITS = EngineLimits(max_rows=1, max_context_tokens=1)
"""While the target is loaded: what the questions need is known once they are tokenised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOptions:
    """How much is measured.

    Attributes:
        engine: what is loaded; its limits are chosen to fit the questions.
        prompts: file of questions.
        limit: questions of the file that are asked; 0 for all.
        demo_limit: questions asked of each copy-heavy route of the demo, of the methods without
            weights, at batch 1 where that is measured.
        long_limit: questions with long prompts asked of them at least, those among the first
            ones counted, at batch 1 where that is measured.
        num_tokens: tokens generated for each question at most; an answer may end before.
        batches: sequences together.
        draft_lengths: k of every method.
        trees: of every method that can branch, beside its chains.
        has_adaptive: measure each method that can adapt in that mode too.
    """

    engine: EngineSettings
    prompts: Path
    limit: int = 10
    demo_limit: int = 2
    long_limit: int = 8
    num_tokens: int = 40
    batches: tuple[int, ...] = (1, 16)
    draft_lengths: tuple[int, ...] = (2, 5)
    trees: tuple[TreeShape, ...] = DEFAULT_TREES
    has_adaptive: bool = False

    @property
    def entries_needed(self) -> int:
        """KV entries that a question needs beside its prompt: its answer and a last tree."""
        return self.num_tokens + _ENTRIES_BEYOND


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workload:
    """Questions answered together, batch after batch, by some arms."""

    source: Source
    batch: int
    groups: tuple[tuple[Encoded, ...], ...]
    arms: tuple[Setting, ...]

    @property
    def num_runs(self) -> int:
        return len(self.arms) * len(self.groups)


class MethodBench:
    """A loaded benchmark.

    Attributes:
        engine: with every drafter.
        plain: without drafters, on the same weights.
        num_runs: how often `on_run` of `run` will be called.
    """

    def __init__(self, options: MethodOptions) -> None:
        """Load the target once, choose the questions, and build both engines for them.

        Raises:
            BadRequest: the file of questions cannot be used.
            StartupError: the model or a drafter cannot be loaded.
        """
        self._options = options
        questions = read_questions(options.prompts)
        return_freed_memory()
        target = load_target(replace(options.engine, limits=_NO_LIMITS))
        room = min(MAX_CONTEXT, target.decoder.shape.max_positions) - options.entries_needed
        chosen = _chosen(options, questions)
        asked = {
            source: fitting(encode(some, target.codec), room) for source, some in chosen.items()
        }
        if not asked[Source.FILE]:
            raise BadRequest(
                f"--prompts {options.prompts}: no question of those chosen has {room} tokens or "
                "less; lower --max-tokens or raise --limit"
            )
        settings = replace(options.engine, limits=_limits(options, asked))
        drafters = load_drafters(settings, target)
        keep_freed_memory()
        self.engine: LoadedEngine = build_engine(settings, target, drafters)
        self.plain: LoadedEngine = build_engine(settings, target, {})
        every = arms(
            self.engine.capabilities,
            options.draft_lengths,
            options.trees,
            has_adaptive=options.has_adaptive,
        )
        self._workloads = _workloads(options.batches, asked, every)
        self._sampled = Sampled(
            file=options.prompts.name,
            questions_in_file=len(questions),
            questions=len(asked[Source.FILE]),
            too_long=sum(len(some) - len(asked[source]) for source, some in chosen.items()),
            later_turns_left_out=sum(question.num_turns - 1 for question in questions),
            more_long_questions=len(asked[Source.LONG]),
            demo_questions=len(asked[Source.DEMO]),
            max_tokens=options.num_tokens,
        )
        self.num_runs = sum(load.num_runs for load in self._workloads)

    def run(self, on_run: Callable[[], None] = lambda: None) -> MethodReport:
        """Measure; takes minutes.

        Args:
            on_run: called after each arm has answered each group of questions.
        """
        turns = Turns(self.engine, self.plain, self._options.num_tokens)
        turns.answer(self._workloads[0].groups[0], OFF)
        runs: list[ArmRun] = []
        for load in self._workloads:
            measured = [_ArmSums(setting) for setting in load.arms]
            for group, arm in itertools.product(load.groups, measured):
                arm.answer(turns, group)
                on_run()
            runs.extend(arm.run(load) for arm in measured)
        return MethodReport(
            runs=tuple(runs),
            sampled=self._sampled,
            not_loaded=tuple(not_loaded(self.engine.capabilities)),
            with_weights=frozenset(
                each.method for each in self.engine.capabilities.methods if each.drafter
            ),
        )


class _ArmSums:
    """One arm while a workload is answered."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._sums: list[Sums] = []
        self._peak_mb: float | None = None

    def answer(self, turns: Turns, group: Sequence[Encoded]) -> None:
        memory = PeakMemory()
        memory.restart()
        taken = turns.answer(group, self._setting)
        self._sums.extend(sums_of(group, taken))
        peaks = (self._peak_mb, memory.read_mb())
        self._peak_mb = max((peak for peak in peaks if peak is not None), default=None)

    def run(self, load: _Workload) -> ArmRun:
        return ArmRun(
            setting=self._setting,
            source=load.source,
            batch=load.batch,
            sums=tuple(self._sums),
            rss_mb=self._peak_mb,
        )


def _chosen(
    options: MethodOptions, questions: Sequence[Question]
) -> dict[Source, Sequence[Question]]:
    """Choose the questions: of the file and, for batch 1, more of its long ones and the demo's."""
    asked = spread(questions, options.limit)
    if 1 not in options.batches:
        return {Source.FILE: asked, Source.LONG: (), Source.DEMO: ()}
    long = [question for question in questions if question.category in LONG_CATEGORIES]
    missing = options.long_limit - sum(question in long for question in asked)
    others = [question for question in long if question not in asked]
    demo = read_questions(bundled_traffic())
    return {
        Source.FILE: asked,
        Source.LONG: spread(others, missing) if missing > 0 else (),
        Source.DEMO: of_each(demo, COPY_ROUTES, options.demo_limit),
    }


def _workloads(
    batches: Sequence[int], asked: Mapping[Source, Sequence[Encoded]], every: Sequence[Setting]
) -> list[_Workload]:
    """Return the file's questions at every batch size for all arms, the others one by one."""
    copying = tuple(setting for setting in every if setting.method in COPYING_METHODS)
    loads = [
        _Workload(
            source=Source.FILE,
            batch=batch,
            groups=tuple(_full_batches(asked[Source.FILE], batch)),
            arms=tuple(every),
        )
        for batch in batches
    ]
    for source in (Source.LONG, Source.DEMO):
        alone = tuple(_full_batches(asked[source], 1))
        loads.append(_Workload(source=source, batch=1, groups=alone, arms=copying))
    return loads


def _full_batches(questions: Sequence[Encoded], batch: int) -> Iterator[tuple[Encoded, ...]]:
    """Yield batches of equal size; the last is filled up with questions from the front."""
    endless = itertools.cycle(questions)
    for _ in range(-(-len(questions) // batch)):
        yield tuple(itertools.islice(endless, batch))


def _limits(options: MethodOptions, asked: Mapping[Source, Sequence[Encoded]]) -> EngineLimits:
    """Return limits just large enough; all prompts of a batch are computed in one step."""
    longest = max(len(question.token_ids) for some in asked.values() for question in some)
    context = longest + options.entries_needed
    max_rows = max(options.batches)
    return EngineLimits(
        max_rows=max_rows, max_context_tokens=context, prefill_tokens=max_rows * context
    )
