"""The real engine under the policy benchmark: one process, one thread, timed by its CPU time.

Thread-CPU time is what a step costs whatever else the machine does; wall-clock time is not.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from collectors.records import DecodeStep, Method, Plan, PlanEntry, Setting, load_level_of
from tuner.bench.questions import Encoded, Question, encode, of_each, read_questions
from tuner.demo.traffic import bundled_traffic
from tuner.engine.drafters.base import Drafter
from tuner.engine.drafters.registry import load_drafters
from tuner.engine.limits import EngineLimits
from tuner.engine.loading import LoadedEngine, build_engine, load_target
from tuner.engine.model.memory import keep_freed_memory, return_freed_memory
from tuner.engine.model.weights import LoadedModel
from tuner.engine.request import EngineRequest, SamplingParams
from tuner.engine.settings import EngineSettings
from tuner.errors import BadRequest

ROUTES = ("code_edit", "json_extract", "rag_answer", "chat")
"""Routes of the demo's traffic that share a batch."""

DRAFTERS = (Method.EAGLE, Method.DRAFT_MODEL)
"""What drafts behind the arms of the draft model: the first one that is loaded."""

SPARE_TOKENS = 16
"""Room behind the longest answer, so that no draft is cut for want of it."""

LIMITS = EngineLimits(max_rows=16, max_context_tokens=1280, prefill_tokens=4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What is loaded once and put together in several ways.

    Attributes:
        settings: what was loaded.
        target: the target.
        drafters: by method.
    """

    settings: EngineSettings
    target: LoadedModel
    drafters: Mapping[Method, Drafter]

    def engine(
        self, drafters: Mapping[Method, Drafter], limits: EngineLimits | None = None
    ) -> LoadedEngine:
        """Return an engine with some drafters on the same weights, timed by thread-CPU time.

        Args:
            drafters: by method.
            limits: sizes; None for those of the settings.
        """
        settings = self.settings if limits is None else replace(self.settings, limits=limits)
        return build_engine(settings, self.target, drafters, clock=time.thread_time)

    def seat(self, settings: EngineSettings) -> Parts:
        """Return parts with fresh drafters on the same weights."""
        drafters = load_drafters(settings, self.target)
        return Parts(settings=settings, target=self.target, drafters=drafters)

    def seated(self, rows: int, prompts: Mapping[str, Sequence[Encoded]], max_tokens: int) -> Parts:
        """Return parts with fresh drafters for the benchmark's arms and room for one batch."""
        longest = max(len(one.token_ids) for encoded in prompts.values() for one in encoded)
        limits = replace(
            self.settings.limits,
            max_rows=rows,
            max_context_tokens=longest + max_tokens + SPARE_TOKENS,
        )
        methods = (Method.PROMPT_LOOKUP, self.drafter)
        return self.seat(replace(self.settings, methods=methods, limits=limits))

    @property
    def drafter(self) -> Method:
        """The method behind the arms of the draft model."""
        return next(method for method in DRAFTERS if method in self.drafters)


def load_parts(settings: EngineSettings) -> Parts:
    """Load the target and its drafters onto one thread.

    Raises:
        BadRequest: no drafter with weights is there.
        StartupError: something cannot be loaded.
    """
    torch.set_num_threads(1)
    return_freed_memory()
    target = load_target(settings)
    drafters = load_drafters(settings, target)
    keep_freed_memory()
    if Method.PROMPT_LOOKUP not in drafters or not set(DRAFTERS) & set(drafters):
        wanted = ", ".join(DRAFTERS)
        raise BadRequest(
            f"--model {settings.model}: parts A and C need prompt_lookup and one of {wanted}; "
            "give --draft"
        )
    return Parts(settings=settings, target=target, drafters=drafters)


def pool(parts: Parts, per_route: int, routes: Sequence[str] = ROUTES) -> dict[str, list[Encoded]]:
    """Return the first prompts of each route of the demo's traffic, tokenised."""
    questions: Sequence[Question] = read_questions(bundled_traffic())
    chosen = encode(of_each(questions, routes, per_route), parts.target.codec)
    found: dict[str, list[Encoded]] = {route: [] for route in routes}
    for question in chosen:
        found[question.category].append(question)
    return found


@dataclass(slots=True, kw_only=True)
class _Running:
    """A request while it runs: which prompt of its route it asks, and what came so far."""

    route: str
    place: int
    token_ids: list[int] = field(default_factory=list)


class LiveBatch:
    """Requests of several routes in an engine; one that ends is replaced by the next of its route.

    All are greedy and follow the plan, which ``step`` sets.
    """

    def __init__(
        self,
        engine: LoadedEngine,
        prompts: Mapping[str, Sequence[Encoded]],
        rows_by_route: Mapping[str, int],
        max_tokens: int,
    ) -> None:
        """Submit the first requests of each route; the engine must be empty.

        Args:
            engine: empty.
            prompts: by route, in the order in which they are asked, again and again.
            rows_by_route: sequences of each route.
            max_tokens: longest answer.
        """
        self._engine = engine
        self._prompts = prompts
        self._max_tokens = max_tokens
        self._load = load_level_of(sum(rows_by_route.values()))
        self._asked: Counter[str] = Counter()
        self._names = itertools.count()
        self._running: dict[str, _Running] = {}
        self._settings: Mapping[str, Setting] | None = None
        self.answers: deque[tuple[str, int, tuple[int, ...]]] = deque()
        """What was answered whole: route, place of the prompt, token ids."""
        for route, num in rows_by_route.items():
            for _ in range(num):
                self._submit(route)

    def step(self, settings: Mapping[str, Setting]) -> DecodeStep:
        """Do one step with these Settings by route, and replace what ended."""
        if settings != self._settings:
            self._put_in_force(settings)
        before = self._engine.journal.last_seq
        deltas = self._engine.core.step()
        for delta in deltas:
            running = self._running[delta.request_id]
            running.token_ids += delta.token_ids
            if delta.finish_reason is not None:
                del self._running[delta.request_id]
                self.answers.append((running.route, running.place, tuple(running.token_ids)))
                self._submit(running.route)
        return step_after(self._engine, before)

    def close(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """Cancel what runs; return its route, place and tokens so far."""
        for name in self._running:
            self._engine.core.cancel(name)
        rest = [(one.route, one.place, tuple(one.token_ids)) for one in self._running.values()]
        self._running = {}
        return rest

    def _submit(self, route: str) -> None:
        name = str(next(self._names))
        prompts = self._prompts[route]
        place = self._asked[route] % len(prompts)
        self._asked[route] += 1
        self._running[name] = _Running(route=route, place=place)
        self._engine.core.submit(
            EngineRequest(
                request_id=name,
                prompt_ids=prompts[place].token_ids,
                sampling=greedy(self._max_tokens),
                route=route,
            )
        )

    def _put_in_force(self, settings: Mapping[str, Setting]) -> None:
        entries = tuple(
            PlanEntry(route=route, load=self._load, setting=setting)
            for route, setting in settings.items()
        )
        self._engine.plan.replace(Plan(entries=entries))
        self._settings = dict(settings)


def greedy(max_tokens: int, *, ignore_eos: bool = False) -> SamplingParams:
    """Return greedy sampling."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=ignore_eos)


def step_after(engine: LoadedEngine, seq: int) -> DecodeStep:
    """Return the first step that the engine journalled after a number."""
    records = engine.journal.page(seq, 100).records
    return next(record for record in records if isinstance(record, DecodeStep))
