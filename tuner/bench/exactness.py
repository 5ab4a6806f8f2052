"""`spectuner bench exactness`: greedy output under speculation against plain decoding.

Every loaded method at several draft lengths and trees, alone and in a batch, token for token. Where
two answers part, the margin of the plain run's two best tokens tells rounding from a fault.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collectors.records import OFF, Method, Setting
from policy.divergence import Comparison, GreedyAnswer, Outcome, classify
from tuner.bench.arms import DEFAULT_TREES, arms, not_loaded
from tuner.bench.driver import Driver, demo_prompts, in_batches
from tuner.engine.drafters.registry import load_drafters
from tuner.engine.drafters.self_sparse import SelfSparseDrafter
from tuner.engine.loading import build_engine, load_target
from tuner.engine.request import Delta
from tuner.engine.settings import EngineSettings

DRAFT_LENGTHS = (1, 3, 5, 8)
BATCH = 8
SPARSE_WINDOW_TOKENS = 32
"""Short, and without the rule that it must pay: self_sparse shall draft on the demo's prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactnessOptions:
    """How much is compared.

    Attributes:
        engine: what is loaded.
        num_prompts: demo prompts.
        num_tokens: tokens generated per prompt.
        noise: top-2 logit margin within which rounding may flip two tokens.
    """

    engine: EngineSettings
    num_prompts: int = 40
    num_tokens: int = 128
    noise: float = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactnessCase:
    """One Setting at one batch size against plain decoding alone.

    Attributes:
        setting: the Setting.
        batch: sequences together.
        outcomes: answers by outcome.
        drafted: draft tokens, of trees levels; 0 says that nothing was put to the test.
        margins: margins where answers part, ascending.
        tokens_per_pass: tokens per target pass over all prompts.
    """

    setting: Setting
    batch: int
    outcomes: dict[Outcome, int]
    drafted: int
    margins: tuple[float, ...]
    tokens_per_pass: float

    @property
    def num_wrong(self) -> int:
        """Answers whose difference rounding does not explain."""
        harmless = (Outcome.IDENTICAL, Outcome.NEAR_TIE)
        return sum(num for outcome, num in self.outcomes.items() if outcome not in harmless)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "setting": self.setting.label,
            "batch": self.batch,
            **{str(outcome): self.outcomes.get(outcome, 0) for outcome in Outcome},
            "drafted": self.drafted,
            "margins": list(self.margins),
            "tokens_per_pass": self.tokens_per_pass,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """The result.

    Attributes:
        cases: every Setting at every batch size.
        not_loaded: methods without weights for this target.
    """

    cases: tuple[ExactnessCase, ...]
    not_loaded: tuple[Method, ...]

    @property
    def num_answers(self) -> int:
        """Answers compared with plain decoding."""
        return sum(sum(case.outcomes.values()) for case in self.cases)

    @property
    def num_wrong(self) -> int:
        """Answers whose difference rounding does not explain."""
        return sum(case.num_wrong for case in self.cases)

    def lines(self) -> list[str]:
        """Return what was compared and found, one sentence each."""
        settings = {case.setting for case in self.cases if case.setting.k}
        trees = {setting for setting in settings if setting.is_tree}
        adaptive = sum(setting.is_adaptive for setting in settings)
        drafting = {case.setting.method for case in self.cases if case.drafted}
        idle = {setting.method for setting in settings} - drafting
        lines = [
            f"Compared {self.num_answers} answers, alone and in batches of {BATCH}. Methods: "
            f"{len(drafting)}, chains: {len(settings) - len(trees)} ({adaptive} adaptive), "
            f"trees: {len(trees)}.",
            f"{self.num_wrong} differences that rounding does not explain.",
        ]
        if idle:
            lines.append(f"Drafted nothing, so not tested: {', '.join(sorted(idle))}")
        if self.not_loaded:
            lines.append(f"Not loaded, so not tested: {', '.join(self.not_loaded)}")
        return lines

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form: the keys of `spectuner bench exactness --json`."""
        return {
            "cases": [case.to_dict() for case in self.cases],
            "answers": self.num_answers,
            "wrong": self.num_wrong,
            "not_loaded": list(self.not_loaded),
        }


class ExactnessBench:
    """A loaded comparison.

    Attributes:
        num_cases: how often `on_case` of `run` will be called.
    """

    def __init__(self, options: ExactnessOptions) -> None:
        """Load the engine with every drafter.

        Raises:
            StartupError: the model or a drafter cannot be loaded.
        """
        self._options = options
        settings = replace(
            options.engine,
            limits=replace(options.engine.limits, max_rows=BATCH),
        )
        target = load_target(settings)
        drafters = load_drafters(settings, target)
        if Method.SELF_SPARSE in drafters:
            drafters[Method.SELF_SPARSE] = SelfSparseDrafter(
                window_tokens=SPARSE_WINDOW_TOKENS, min_saved_ratio=0.0
            )
        self._engine = build_engine(settings, target, drafters)
        self._settings = arms(
            self._engine.capabilities, DRAFT_LENGTHS, DEFAULT_TREES, has_adaptive=True
        )
        self._batches = (1, BATCH)
        self.num_cases = len(self._settings) * len(self._batches)

    def run(self, on_case: Callable[[ExactnessCase], None] = lambda case: None) -> Exactness:
        """Compare; takes minutes.

        Args:
            on_case: called after each case.
        """
        driver = Driver(self._engine, self._options.num_tokens)
        prompts = demo_prompts(self._engine.codec, self._options.num_prompts)
        reference = [
            _answer(deltas)
            for prompt in prompts
            for deltas in driver.answers([prompt], OFF, logprobs=2)
        ]
        cases = []
        for setting, batch in itertools.product(self._settings, self._batches):
            answers = [
                deltas
                for group in in_batches(prompts, batch)
                for deltas in driver.answers(group, setting)
            ]
            cases.append(_case(setting, batch, reference, answers, self._options.noise))
            on_case(cases[-1])
        missing = not_loaded(self._engine.capabilities)
        return Exactness(cases=tuple(cases), not_loaded=tuple(missing))


def _case(
    setting: Setting,
    batch: int,
    reference: Sequence[GreedyAnswer],
    answers: Sequence[Sequence[Delta]],
    noise: float,
) -> ExactnessCase:
    compared: list[Comparison] = [
        classify(plain, _answer(deltas), noise=noise)
        for plain, deltas in zip(reference, answers, strict=True)
    ]
    counts = [deltas[-1].counts for deltas in answers]
    passes = sum(count.passes for count in counts)
    return ExactnessCase(
        setting=setting,
        batch=batch,
        outcomes=dict(Counter(each.outcome for each in compared)),
        drafted=sum(count.drafted for count in counts),
        margins=tuple(sorted(each.margin for each in compared if each.margin is not None)),
        tokens_per_pass=1 + sum(count.accepted for count in counts) / max(1, passes),
    )


def _answer(deltas: Sequence[Delta]) -> GreedyAnswer:
    tops = [token.top for delta in deltas for token in delta.logprobs]
    return GreedyAnswer(
        token_ids=tuple(token for delta in deltas for token in delta.token_ids),
        margins=tuple(top[0][1] - top[1][1] for top in tops),
    )
