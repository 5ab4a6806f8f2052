"""Greedy outputs of plain decoding against a Setting, with a control arm.

The reference runs plain and alone. The control runs plain and the tested arm runs the Setting, both
in batches of the same size, so that what the batch shape alone does to rounding is measured and
not blamed on speculation. Penalties and biases are left out, because the margins that tell a near
tie from a fault are those of the model's raw logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from collectors.records import OFF, Setting
from policy.divergence import (
    NOISE_BY_DTYPE,
    Comparison,
    DivergenceReport,
    GreedyAnswer,
    Outcome,
    Verdict,
    classify,
    measured_noise,
    report,
)
from tuner.errors import BadRequest
from tuner.store import divergences, pinned, route_proofs
from tuner.store.captures import StoredCapture
from tuner.store.divergences import ArmCounts, DivergencePair, DivergenceSummary
from tuner.workflows.replay import MAX_CONCURRENCY, pin
from tuner.workflows.shadow import NO_DECODE_PASS, ask, mismatch_reason
from tuner.workflows.site import Site
from tuner.workflows.turns import chosen_captures

GREEDY: dict[str, object] = {
    "temperature": 0.0,
    "top_p": None,
    "top_k": None,
    "min_p": None,
    "repetition_penalty": None,
    "presence_penalty": None,
    "frequency_penalty": None,
    "logit_bias": None,
    "min_tokens": None,
    "seed": None,
    "logprobs": 2,
}
"""What every arm is asked for, whatever the captured request had."""

NOISE_CEILING = 10.0
"""A control that parts beyond this many times its dtype's noise has a fault, not noise."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceOptions:
    """How outputs are compared.

    Attributes:
        route: the only route to take prompts from; None for all.
        requests: captured prompts at most.
        concurrency: batch of the control and of the tested arm.
        max_tokens: cap on the answers.
    """

    route: str | None = None
    requests: int = 20
    concurrency: int = 4
    max_tokens: int = 128

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if self.requests < 1 or self.max_tokens < 2:
            raise BadRequest(
                "requests must be at least 1 and max tokens at least 2, "
                f"got {self.requests} and {self.max_tokens}"
            )
        if not 2 <= self.concurrency <= MAX_CONCURRENCY:
            raise BadRequest(
                f"concurrency must be 2 to {MAX_CONCURRENCY}, so that the control differs from the "
                f"reference; got {self.concurrency}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceDone:
    """A finished report.

    Attributes:
        id: its number in the store.
        setting: the Setting tested.
        summary: what it says of all routes together.
        by_route: what it says of each route, by the prompts of that route alone.
        left_out: prompts that every arm answered with one token, so without a decode pass.
        pairs: prompt by prompt, the tested arm first.
    """

    id: int
    setting: Setting
    summary: DivergenceSummary
    by_route: Mapping[str, DivergenceSummary]
    left_out: int
    pairs: tuple[DivergencePair, ...]


def divergence(
    site: Site,
    setting: Setting,
    options: DivergenceOptions,
    *,
    on_answer: Progress = lambda done, total: None,
) -> DivergenceDone:
    """Compare captured prompts' greedy outputs with and without a Setting, and store the report.

    Args:
        site: the engine and its store.
        setting: the Setting to test.
        options: how to compare.
        on_answer: called with answers had and answers in all.

    Raises:
        BadRequest: the engine cannot run the Setting.
        NothingToDo: no captured request with a decode pass is there.
        Interrupted: the service is stopping; nothing is stored.
        SourceUnreachable: the engine does not answer at the start.
        SourceRefused: the engine refused at the start.
    """
    plain, tested = pin(site, (OFF, setting))
    chosen = chosen_captures(site, options.route, options.requests)
    shapes = ((OFF, 1), (OFF, options.concurrency), (setting, options.concurrency))
    arms = [
        _answers(site, chosen, arm, batch, options, partial(_progress, on_answer, place, chosen))
        for place, (arm, batch) in enumerate(shapes)
    ]
    told = [place for place in range(len(chosen)) if any(arm[place].is_told for arm in arms)]
    judged = _judge(site, plain, [[arm[place].answer for place in told] for arm in arms])
    compared = [chosen[place] for place in told]
    by_route = _by_route(compared, judged)
    pairs = (
        *_pairs("tested", compared, judged.tested),
        *_pairs("control", compared, judged.control),
    )
    with site.store.writing() as session:
        number = divergences.add(
            session,
            engine=site.engine,
            plain=plain,
            tested=tested,
            summary=judged.summary,
            pairs=pairs,
            at=site.now(),
        )
        route_proofs.add_outputs(session, number, by_route)
    return DivergenceDone(
        id=number,
        setting=setting,
        summary=judged.summary,
        by_route=by_route,
        left_out=len(chosen) - len(told),
        pairs=pairs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """One answer, and whether it tells anything: one of a single token does not."""

    answer: GreedyAnswer
    is_told: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """Both arms compared with the reference."""

    tested: tuple[Comparison, ...]
    control: tuple[Comparison, ...]
    noise: float
    summary: DivergenceSummary


def _progress(
    on_answer: Progress, arm: int, chosen: Sequence[StoredCapture], done_in_arm: int
) -> None:
    on_answer(arm * len(chosen) + done_in_arm, 3 * len(chosen))


def _answers(
    site: Site,
    chosen: Sequence[StoredCapture],
    setting: Setting,
    concurrency: int,
    options: DivergenceOptions,
    on_done: Callable[[int], None],
) -> list[_Answered]:
    """Return one greedy answer a prompt, in order, with so many on the engine at once."""

    def answer(capture: StoredCapture) -> _Answered:
        site.raise_if_stopping()
        own = capture.request.sampling.get("max_tokens")
        cap = min(own, options.max_tokens) if isinstance(own, int) else options.max_tokens
        wanted = {**GREEDY, "max_tokens": cap}
        got = ask(site.address, capture, setting, wanted, stopping=site.stopping)
        site.raise_if_stopping()
        reason = mismatch_reason(setting, got)
        is_told = reason != NO_DECODE_PASS
        greedy = GreedyAnswer(
            token_ids=got.token_ids, margins=got.margins, error=reason if is_told else None
        )
        return _Answered(answer=greedy, is_told=is_told)

    answers: list[_Answered] = []
    with ThreadPoolExecutor(max_workers=concurrency) as pool:
        for one in pool.map(answer, chosen):
            answers.append(one)
            on_done(len(answers))
    return answers


def _judge(site: Site, plain: str, arms: Sequence[Sequence[GreedyAnswer]]) -> _Judged:
    """Compare control and tested arm with the reference, with the noise that the control shows."""
    reference, control, tested = arms
    with site.store.reading() as session:
        dtype = pinned.one(session, plain).dtype
    known = dtype if dtype in NOISE_BY_DTYPE else "float32"
    first_look = [classify(a, b) for a, b in zip(reference, control, strict=True)]
    noise = min(measured_noise(first_look, dtype=known), NOISE_CEILING * NOISE_BY_DTYPE[known])
    compared = [
        tuple(classify(a, b, noise=noise) for a, b in zip(reference, arm, strict=True))
        for arm in (tested, control)
    ]
    summary = _summary(report(compared[0], compared[1], noise=noise))
    return _Judged(tested=compared[0], control=compared[1], noise=noise, summary=summary)


def _by_route(chosen: Sequence[StoredCapture], judged: _Judged) -> dict[str, DivergenceSummary]:
    """Judge each route on its own prompts; the noise is the machine's, so that of all."""
    found = {}
    for route in sorted({one.request.route for one in chosen}):
        own = [place for place, one in enumerate(chosen) if one.request.route == route]
        tested = [judged.tested[place] for place in own]
        control = [judged.control[place] for place in own]
        found[route] = _summary(report(tested, control, noise=judged.noise))
    return found


def _summary(found: DivergenceReport) -> DivergenceSummary:
    diverges = {Verdict.FAIL: True, Verdict.PASS: False}.get(found.verdict)
    return DivergenceSummary(
        tested=_counts(found.outcomes),
        control=_counts(found.control_outcomes),
        diverges=diverges,
        verdict=f"{found.verdict}: {'; '.join(found.reasons)}",
        noise_margin=found.noise,
        false_alarm_rate=found.false_alarm,
        p_value=found.p_value,
    )


def _counts(outcomes: Mapping[Outcome, int]) -> ArmCounts:
    return ArmCounts(**{outcome.value: outcomes.get(outcome, 0) for outcome in Outcome})


def _pairs(
    arm: str, chosen: Sequence[StoredCapture], compared: Sequence[Comparison]
) -> tuple[DivergencePair, ...]:
    return tuple(
        DivergencePair(
            arm=arm,
            place=place,
            request_id=capture.request.request_id,
            route=capture.request.route,
            kind=comparison.outcome,
            split_at=comparison.position,
            margin=comparison.margin,
            detail=comparison.reason,
        )
        for place, (capture, comparison) in enumerate(zip(chosen, compared, strict=True))
    )
