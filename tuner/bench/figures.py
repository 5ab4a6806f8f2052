"""From decode steps to figures: acceptance, draft cost, predicted and measured speedup.

Pure arithmetic. Sums are kept by question, so that any set of questions can be put together and
its figures drawn again for an interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collectors.records import StepGroup
from policy.theory import tokens_from_survival
from tuner.bench.questions import Encoded
from tuner.bench.turns import Turn

_RESAMPLES = 2000
_QUANTILES = (0.05, 0.95)
_FEWEST = 5
"""Below so many questions an interval says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What one arm did on one question, alone or among others.

    Attributes:
        question: name of the question.
        category: its category.
        outcomes: passes by (drafted, accepted).
        answers: how often it was asked in the batch, which is filled up with repetitions.
        tokens: delivered by the timed steps, over all answers.
        step_s: seconds of the timed steps in which it was being answered, whoever shared them.
        plain_step_s: seconds of the plain steps beside them.
        draft_s: seconds of drafting in the timed steps.
        draft_depth: sequential draft steps in the timed steps.
        num_timed: timed steps.
        first_draft_s: seconds of the first draft, in which drafters read the prompts.
    """

    question: str
    category: str
    outcomes: Counter[tuple[int, int]]
    answers: int = 1
    tokens: int = 0
    step_s: float = 0.0
    plain_step_s: float = 0.0
    draft_s: float = 0.0
    draft_depth: int = 0
    num_timed: int = 0
    first_draft_s: float = 0.0

    @property
    def arm_s(self) -> float:
        """Seconds that the answers waited for their tokens."""
        return self.answers * self.step_s

    @property
    def plain_s(self) -> float:
        """Seconds that plain steps would have taken for these tokens, one a step."""
        return self.tokens * self.plain_step_s / self.num_timed if self.num_timed else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one arm is worth on a set of questions.

    Attributes:
        questions: answers counted, repetitions that fill a batch among them.
        tokens_per_pass: per sequence, over all passes.
        acceptance_by_position: by draft position, chance that it is kept where all before it were.
        c: one draft step over one plain step; None where nothing was drafted or timed.
        predicted_speedup: from acceptance, c and draft steps alone; None as c.
        speedup: plain time over time, for the same tokens; None where nothing was timed.
        interval: [low, mean, high] of 90 % over questions; None for a few.
        first_draft_steps: the first draft, which reads the prompt, in plain steps.
    """

    questions: int
    tokens_per_pass: float
    acceptance_by_position: tuple[float, ...]
    c: float | None
    predicted_speedup: float | None
    speedup: float | None
    interval: tuple[float, float, float] | None
    first_draft_steps: float | None


def sums_of(questions: Sequence[Encoded], turns: Sequence[Turn]) -> list[Sums]:
    """Add up, by question, the steps in which some questions were answered together.

    Args:
        questions: those of the batch, repetitions among them.
        turns: their decode steps, in groups by question.
    """
    counts = Counter(question.name for question in questions)
    first_draft_s = turns[0].step.draft_s if turns else 0.0
    distinct = {question.name: question for question in questions}.values()
    return [
        _sums_of(question, counts[question.name], turns, first_draft_s) for question in distinct
    ]


def figures_of(
    sums: Sequence[Sums],
    k: int,
    categories: Sequence[str] | None = None,
    *,
    is_adaptive: bool = False,
) -> Figures | None:
    """Return the figures of one arm over a set of questions.

    Args:
        sums: the arm's sums.
        k: its draft length.
        categories: those that count; None for all.
        is_adaptive: its drafts may be shorter than k.

    Returns:
        None where no question of these categories was answered by a pass.
    """
    counted = [each for each in sums if categories is None or each.category in categories]
    survival = survival_of(counted, k)
    if survival is None:
        return None
    c = _draft_cost(counted)
    depth = _mean_depth(counted) if c is not None and is_adaptive else k
    tokens_per_pass = tokens_from_survival(survival, k)
    return Figures(
        questions=sum(each.answers for each in counted),
        tokens_per_pass=tokens_per_pass,
        acceptance_by_position=_acceptance(_merged(counted), k),
        c=c,
        predicted_speedup=None if c is None else tokens_per_pass / (1 + depth * c),
        speedup=_speedup(counted),
        interval=_interval(counted),
        first_draft_steps=_first_draft_steps(counted) if k else None,
    )


def survival_of(sums: Sequence[Sums], k: int) -> list[float] | None:
    """Return, by draft position, how often it and all before it were kept; None without a pass."""
    outcomes = _merged(sums)
    passes = outcomes.total()
    if not passes:
        return None
    return [
        sum(num for (_, accepted), num in outcomes.items() if accepted > position) / passes
        for position in range(k)
    ]


def step_ratio(sums: Sequence[Sums]) -> float | None:
    """Return the mean step over the mean plain step beside it; None where nothing was timed."""
    plain_s = sum(each.plain_step_s for each in sums)
    return sum(each.step_s for each in sums) / plain_s if plain_s else None


def _sums_of(question: Encoded, answers: int, turns: Sequence[Turn], first_draft_s: float) -> Sums:
    own = [
        (turn, group)
        for turn in turns
        for group in turn.step.groups
        if group.route == question.name
    ]
    timed = [(turn.step, turn.plain_s, group) for turn, group in own if turn.plain_s is not None]
    return Sums(
        question=question.name,
        category=question.category,
        outcomes=_outcomes([group for _, group in own]),
        answers=answers,
        tokens=sum(group.tokens for _, _, group in timed),
        step_s=sum(step.step_s for step, _, _ in timed),
        plain_step_s=sum(plain_s for _, plain_s, _ in timed),
        draft_s=sum(step.draft_s for step, _, _ in timed),
        draft_depth=sum(cost.depth for step, _, _ in timed for cost in step.drafts),
        num_timed=len(timed),
        first_draft_s=first_draft_s,
    )


def _outcomes(groups: Sequence[StepGroup]) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    for outcome in (outcome for group in groups for outcome in group.outcomes):
        counts[outcome.drafted, outcome.accepted] += outcome.rows
    return counts


def _merged(sums: Sequence[Sums]) -> Counter[tuple[int, int]]:
    total: Counter[tuple[int, int]] = Counter()
    for each in sums:
        total.update(each.outcomes)
    return total


def _acceptance(outcomes: Counter[tuple[int, int]], k: int) -> tuple[float, ...]:
    """Return kept over attempted by position, up to the last position that was attempted."""
    rates = []
    for position in range(k):
        attempted = sum(
            num
            for (drafted, accepted), num in outcomes.items()
            if drafted > position and accepted >= position
        )
        if not attempted:
            break
        kept = sum(num for (_, accepted), num in outcomes.items() if accepted > position)
        rates.append(kept / attempted)
    return tuple(rates)


def _draft_cost(sums: Sequence[Sums]) -> float | None:
    depth, timed = sum(each.draft_depth for each in sums), sum(each.num_timed for each in sums)
    if not depth or not timed:
        return None
    plain_step_s = sum(each.plain_step_s for each in sums) / timed
    return sum(each.draft_s for each in sums) / depth / plain_step_s


def _mean_depth(sums: Sequence[Sums]) -> float:
    """Return the sequential draft steps of a timed step."""
    return sum(each.draft_depth for each in sums) / sum(each.num_timed for each in sums)


def _first_draft_steps(sums: Sequence[Sums]) -> float | None:
    timed = sum(each.num_timed for each in sums)
    if not timed:
        return None
    plain_step_s = sum(each.plain_step_s for each in sums) / timed
    return sum(each.first_draft_s for each in sums) / len(sums) / plain_step_s


def _speedup(sums: Sequence[Sums]) -> float | None:
    arm_s = sum(each.arm_s for each in sums)
    return sum(each.plain_s for each in sums) / arm_s if arm_s else None


def _interval(sums: Sequence[Sums]) -> tuple[float, float, float] | None:
    """Return the 90 % interval of the speedup when questions are drawn again (bootstrap)."""
    by_question: dict[str, list[float]] = {}
    for each in sums:
        if each.num_timed:
            pair = by_question.setdefault(each.question, [0.0, 0.0])
            pair[0] += each.plain_s
            pair[1] += each.arm_s
    speedup = _speedup(sums)
    if len(by_question) < _FEWEST or speedup is None:
        return None
    seconds = np.array(list(by_question.values()))
    drawn = np.random.default_rng(0).integers(len(seconds), size=(_RESAMPLES, len(seconds)))
    plain_s, arm_s = seconds[drawn].sum(1).T
    low, high = np.quantile(plain_s / arm_s, _QUANTILES)
    return (float(low), speedup, float(high))
