"""`spectuner bench engine`: the bundled engine against transformers and against its own limits.

Everything runs in one process and one run, in turns, on the same prompts and tokens; figures are
medians of per-round ratios. Times are of decoding: prefill and the first draft, for which drafters
read the prompt, are left out on both sides.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from collectors.lookup import Match
from collectors.records import OFF, DecodeStep, Method, Setting
from policy.theory import speedup
from tuner.bench.bandwidth import read_seconds
from tuner.bench.driver import Driver, demo_prompts, in_batches
from tuner.bench.peer_case import PeerCase
from tuner.bench.peers import TransformersPeer
from tuner.bench.timing import Job, median_ratio, round_robin
from tuner.engine.drafters.prompt_lookup import PromptLookupDrafter
from tuner.engine.drafters.registry import find_draft, load_drafters
from tuner.engine.loading import build_engine, load_target
from tuner.engine.model.bundled_model import resolve_model
from tuner.engine.model.memory import keep_freed_memory
from tuner.engine.settings import EngineSettings

DRAFT_LENGTH = 5
BATCH = 8
NUM_ALONE = 3
SAMPLED_TEMPERATURE = 0.7
OVERHEAD_CASES = ("plain_b8", "draft_k5_b8", "sampled_b8")
DRAFT = Setting(method=Method.DRAFT_MODEL, k=DRAFT_LENGTH)
LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=DRAFT_LENGTH, lookup_min=1, lookup_max=3)
EARLIEST = "lookup_earliest_k5_b1"
"""Prompt lookup as transformers does it: what followed the earliest match, not the latest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBenchOptions:
    """How much is measured.

    Attributes:
        engine: what is loaded.
        num_tokens: tokens generated per prompt.
        rounds: rounds counted.
    """

    engine: EngineSettings
    num_tokens: int = 48
    rounds: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the result.

    Attributes:
        name: what was measured.
        peer: what it is compared with; empty for none.
        ratio: peer's time of decoding over ours, for a token; None where there is no peer.
        answer_ratio: the same for whole answers, with prefill and first draft.
        tokens_per_s: ours while decoding, for the reader of this run only.
        tokens_per_pass: ours, per sequence; with a peer that drafts counted on the same prompts
            from the same first token on.
        peer_tokens_per_pass: the peer's, likewise; None where there is no peer.
    """

    name: str
    peer: str
    ratio: float | None
    answer_ratio: float | None
    tokens_per_s: float
    tokens_per_pass: float
    peer_tokens_per_pass: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBench:
    """The result.

    Attributes:
        cases: against peers.
        acceptance: alpha of the draft model, accepted over attempted positions.
        draft_cost: c, one draft step over one target step, at batch 1.
        measured_speedup: draft model at k = 5 over plain, batch 1.
        formula_ratio: measured speedup over the formula's prediction from alpha and c.
        off_tax_ratio: plain step with drafters loaded over one without, on the same weights, in
            turns step by step, less 1.
        bandwidth_bound_ratio: plain step over the time to read its weights once.
        overhead_ratios: at batch 8, share of a step outside the passes of target and drafters
            (batching, verification, sampling, journal), by case.
    """

    cases: tuple[Case, ...]
    acceptance: float
    draft_cost: float
    measured_speedup: float
    formula_ratio: float
    off_tax_ratio: float
    bandwidth_bound_ratio: float
    overhead_ratios: Mapping[str, float]

    def lines(self) -> list[str]:
        """Return the figures beside the cases, one sentence each."""
        shares = ", ".join(
            f"{name} {100 * ratio:.1f} %" for name, ratio in self.overhead_ratios.items()
        )
        return [
            f"Draft model: acceptance {self.acceptance:.3f}, draft cost c {self.draft_cost:.3f}, "
            f"speedup at k = {DRAFT_LENGTH} {self.measured_speedup:.2f}",
            f"Measured speedup over the formula's: {self.formula_ratio:.2f}",
            f"Tax of speculation switched off: {100 * self.off_tax_ratio:.2f} %",
            f"Plain step over the memory bandwidth's bound: {self.bandwidth_bound_ratio:.2f}",
            f"Share of a step outside the models' passes at batch 8: {shares}",
        ]

    def peer_cases(self) -> list[PeerCase]:
        """Return the cases with a peer."""
        return [
            PeerCase(
                peer=case.peer,
                case=case.name,
                ratio=case.ratio,
                tokens_per_pass=case.tokens_per_pass,
                peer_tokens_per_pass=case.peer_tokens_per_pass,
            )
            for case in self.cases
            if case.peer
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form: the keys of `spectuner bench engine --json`."""
        plain: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        plain["cases"] = [case.to_dict() for case in self.cases]
        return plain


PeerJob = Callable[[Sequence[Sequence[int]], int], None]


class _Bench:
    """The jobs of one benchmark and the steps they took."""

    def __init__(self, options: EngineBenchOptions, on_job: Callable[[], None]) -> None:
        self._options = options
        self._on_job = on_job
        settings = _with_rows(options.engine, BATCH)
        alone = _with_rows(options.engine, 1)
        target = load_target(settings)
        self.engine = build_engine(settings, target, load_drafters(settings, target))
        clean = build_engine(alone, target, {})
        earliest = PromptLookupDrafter(Match.EARLIEST)
        like_peer = build_engine(alone, target, {Method.PROMPT_LOOKUP: earliest})
        keep_freed_memory()
        self._peer = TransformersPeer(
            resolve_model(options.engine.model), find_draft(options.engine)
        )
        self._driver = Driver(self.engine, options.num_tokens)
        self._clean = Driver(clean, options.num_tokens)
        self._like_peer = Driver(like_peer, options.num_tokens)
        self._prompts = demo_prompts(self.engine.codec, BATCH)
        self.rounds: dict[str, list[list[DecodeStep]]] = {}
        self.peer_token_s: dict[str, list[float]] = {}
        self.peer_per_pass: dict[str, float] = {}
        self.counted: dict[str, tuple[float, float]] = {}
        self.tax_ratios: list[float] = []

    def jobs(self) -> dict[str, Job]:
        """Return every job, ours and the peer's, in the order of a round."""
        peer = self._peer
        return {
            "plain_b1": self._ours("plain_b1", 1, OFF, self._driver),
            "off_tax": self._taxed,
            "plain_b1/peer": self._theirs("plain_b1", 1, peer.plain),
            "draft_k5_b1": self._ours("draft_k5_b1", 1, DRAFT, self._driver),
            "draft_k5_b1/peer": self._theirs("draft_k5_b1", 1, self._assisted),
            "lookup_k5_b1": self._ours("lookup_k5_b1", 1, LOOKUP, self._driver),
            EARLIEST: self._ours(EARLIEST, 1, LOOKUP, self._like_peer),
            f"{EARLIEST}/peer": self._theirs(EARLIEST, 1, self._lookup),
            "plain_b8": self._ours("plain_b8", 8, OFF, self._driver),
            "plain_b8/peer": self._theirs("plain_b8", 8, peer.plain),
            "draft_k5_b8": self._ours("draft_k5_b8", 8, DRAFT, self._driver),
            "sampled_b8": self._ours("sampled_b8", 8, OFF, self._driver, SAMPLED_TEMPERATURE),
        }

    def count_passes(self) -> None:
        """Count the passes of ours and the peer where both draft, once, since both are greedy."""
        self._count("draft_k5_b1", DRAFT, self._driver, self._assisted)
        self._count(EARLIEST, LOOKUP, self._like_peer, self._lookup)

    def _assisted(self, group: Sequence[Sequence[int]], num_tokens: int) -> None:
        self._peer.assisted(group, num_tokens, DRAFT_LENGTH)

    def _lookup(self, group: Sequence[Sequence[int]], num_tokens: int) -> None:
        self._peer.lookup(group, num_tokens, DRAFT_LENGTH)

    def _count(self, name: str, setting: Setting, driver: Driver, job: PeerJob) -> None:
        """Count passes from the same first token on.

        Ours comes from the prefill alone. The peer drafts in the pass with the prompt already, so
        it is given our first token with the prompt, and that pass counts.
        """
        tokens = passes = 0
        counts = self._peer.restart()
        for prompt in self._prompts:
            (deltas,) = driver.answers([prompt], setting)
            ids = [token for delta in deltas for token in delta.token_ids]
            tokens += len(ids) - 1
            passes += deltas[-1].counts.passes
            job([[*prompt, ids[0]]], len(ids) - 1)
        self.counted[name] = (tokens / passes, tokens / counts.num_passes)
        self._on_job()

    def _taxed(self) -> None:
        """Run plain decoding with and without drafters loaded, step by step in turns."""
        for prompt in self._prompts[:NUM_ALONE]:
            pairs = self._driver.in_turns(self._clean, prompt, OFF)
            self.tax_ratios.extend(ours.step_s / clean.step_s for ours, clean in pairs)
        self._on_job()

    def _groups(self, batch: int) -> list[Sequence[Sequence[int]]]:
        """Return the prompts of a job: a few one by one, or all of them together."""
        return in_batches(self._prompts[: NUM_ALONE if batch == 1 else batch], batch)

    def _ours(
        self, name: str, batch: int, setting: Setting, driver: Driver, temperature: float = 0.0
    ) -> Job:
        def run() -> None:
            taken: list[DecodeStep] = []
            for group in self._groups(batch):
                taken.extend(driver.steps(group, setting, temperature=temperature)[1:])
            self.rounds.setdefault(name, []).append(taken)
            self._on_job()

        return run

    def _theirs(self, name: str, batch: int, job: PeerJob) -> Job:
        peer = self._peer

        def run() -> None:
            counts = peer.restart()
            for group in self._groups(batch):
                job(group, self._options.num_tokens)
            self.peer_per_pass[name] = counts.num_tokens / counts.num_passes
            self.peer_token_s.setdefault(name, []).append(counts.decode_s / counts.decode_tokens)
            self._on_job()

        return run


def _with_rows(settings: EngineSettings, max_rows: int) -> EngineSettings:
    return replace(settings, limits=replace(settings.limits, max_rows=max_rows))


_PEERS = {
    "plain_b1": "transformers generate",
    "draft_k5_b1": "transformers assisted generation",
    "lookup_k5_b1": "",
    EARLIEST: "transformers prompt lookup",
    "plain_b8": "transformers generate, batch of 8",
    "draft_k5_b8": "",
}


def num_jobs(options: EngineBenchOptions) -> int:
    """Return how often `on_job` will be called."""
    return 12 * (options.rounds + 1) + 2


def bench_engine(
    options: EngineBenchOptions, on_job: Callable[[], None] = lambda: None
) -> EngineBench:
    """Measure; takes some minutes.

    Args:
        options: how much.
        on_job: called after each job, for a progress bar.

    Raises:
        StartupError: the model or its draft cannot be loaded.
    """
    bench = _Bench(options, on_job)
    bench.count_passes()
    seconds = round_robin(bench.jobs(), options.rounds)
    rounds = {name: taken[1:] for name, taken in bench.rounds.items()}
    acceptance, draft_cost = _acceptance(rounds["draft_k5_b1"]), _draft_cost(rounds)
    measured = median_ratio(
        [_token_s(taken) for taken in rounds["plain_b1"]],
        [_token_s(taken) for taken in rounds["draft_k5_b1"]],
    )
    return EngineBench(
        cases=tuple(_case(name, peer, seconds, rounds, bench) for name, peer in _PEERS.items()),
        acceptance=acceptance,
        draft_cost=draft_cost,
        measured_speedup=measured,
        formula_ratio=measured / speedup(acceptance, DRAFT_LENGTH, draft_cost),
        off_tax_ratio=statistics.median(bench.tax_ratios) - 1,
        bandwidth_bound_ratio=statistics.median(_step_s(taken) for taken in rounds["plain_b1"])
        / read_seconds(torch.ones(bench.engine.num_weights)),
        overhead_ratios={name: _overhead(rounds[name]) for name in OVERHEAD_CASES},
    )


def _case(
    name: str,
    peer: str,
    seconds: Mapping[str, Sequence[float]],
    rounds: Mapping[str, Sequence[Sequence[DecodeStep]]],
    bench: _Bench,
) -> Case:
    groups = [group for taken in rounds[name] for step in taken for group in step.groups]
    per_pass = 1 + sum(group.accepted for group in groups) / sum(group.rows for group in groups)
    ours, peers = bench.counted.get(name, (per_pass, bench.peer_per_pass.get(name)))
    token_s = [_token_s(taken) for taken in rounds[name]]
    return Case(
        name=name,
        peer=peer,
        ratio=median_ratio(bench.peer_token_s[name][1:], token_s) if peer else None,
        answer_ratio=median_ratio(seconds[f"{name}/peer"], seconds[name]) if peer else None,
        tokens_per_s=1 / statistics.median(token_s),
        tokens_per_pass=ours,
        peer_tokens_per_pass=peers,
    )


def _overhead(rounds: Sequence[Sequence[DecodeStep]]) -> float:
    """Return the median share spent outside the models' passes, of the steps with most rows."""
    steps = [step for taken in rounds for step in taken]
    most = max(step.running for step in steps)
    full = [step for step in steps if step.running == most]
    return statistics.median((step.sample_s + step.other_s) / step.step_s for step in full)


def _step_s(steps: Sequence[DecodeStep]) -> float:
    return statistics.median(step.step_s for step in steps)


def _token_s(steps: Sequence[DecodeStep]) -> float:
    """Return seconds of decoding per delivered token."""
    tokens = sum(group.tokens for step in steps for group in step.groups)
    return sum(step.step_s for step in steps) / tokens


def _acceptance(rounds: Sequence[Sequence[DecodeStep]]) -> float:
    """Return accepted over attempted positions: a position counts once all before it were kept."""
    accepted = attempted = 0
    for steps in rounds:
        for outcome in (o for step in steps for group in step.groups for o in group.outcomes):
            accepted += outcome.accepted * outcome.rows
            attempted += min(outcome.accepted + 1, outcome.drafted) * outcome.rows
    return accepted / attempted


def _draft_cost(rounds: Mapping[str, Sequence[Sequence[DecodeStep]]]) -> float:
    """Return one draft pass over one plain target step, medians by round."""
    drafts = [
        statistics.median(cost.seconds / cost.depth for step in taken for cost in step.drafts)
        for taken in rounds["draft_k5_b1"]
    ]
    return median_ratio(drafts, [_step_s(taken) for taken in rounds["plain_b1"]])
