"""Sampled answers are distributed as the target alone under every drafter, and none lies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from collectors.records import OFF, AcceptanceRule, Method, Setting
from tests.contracts.drafter_cases import EACH_CASE, Case, cases
from tests.tuner.engine.harness import (
    CONTEXT,
    DRAFTERS,
    SCRIPTED,
    SmallEngine,
    plain_logits,
    random_decoder,
    request,
    small_engine,
    tokens_of,
)
from tests.tuner.engine.verification.reference_sampling import reference_probs
from tuner.engine.drafters.base import Draft, DraftAsk, Drafter
from tuner.engine.limits import EngineLimits
from tuner.engine.request import EngineRequest, SamplingParams
from tuner.engine.verification import rows as sampler_rows
from tuner.engine.verification.drawing import new_generator
from tuner.engine.verification.selfcheck import (
    chi_square_p_value,
    claimed_probs_p_value,
    sibling_claims,
)
from tuner.engine.verification.typical import typical_thresholds

FALSE_ALARM = 1e-4
"""A right drafter falls below this p-value once in so many cases; seeds are fixed."""

VOCAB = 5
PROMPT = (1, 2, 1, 2, 1)
OUTCOME_LENGTH = 4
"""The first token comes with the prompt; the outcomes tested are the three after it."""

SAMPLES = 1600
SAMPLINGS: tuple[dict[str, float], ...] = (
    {"temperature": 1.0},
    {"temperature": 1.4, "top_k": 4},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.2, "min_p": 0.1},
)


def sampling_engine(name: str, position_s: float = 0.1) -> SmallEngine:
    return small_engine(
        vocab_size=VOCAB,
        seed=3,
        drafters=(name,),
        draft=random_decoder(8, VOCAB, scale=0.4),
        limits=EngineLimits(
            max_rows=48, max_context_tokens=CONTEXT, queue_limit=SAMPLES, prefill_tokens=240
        ),
        scale=0.3,
        position_s=position_s,
    )


def sampled_requests(setting: Setting, num: int, **sampling: object) -> list:  # type: ignore[type-arg]
    return [
        request(str(n), PROMPT, setting=setting, max_tokens=7, seed=n, **sampling)
        for n in range(num)
    ]


def outcome_p_value(case: Case, sampling: dict[str, float], samples: int = SAMPLES) -> float:
    """Return the p-value of the second to fourth token of sampled answers, together."""
    engine = sampling_engine(case.name)
    return p_value_of(engine, sampled_requests(case.setting, samples, **sampling))


def p_value_of(engine: SmallEngine, asked: Sequence[EngineRequest]) -> float:
    """Return the p-value of what an engine answers to equal requests."""
    deltas = engine.run(asked)
    outcomes = torch.tensor([tokens_of(each)[1:OUTCOME_LENGTH] for each in deltas.values()])
    numbers = (outcomes * VOCAB ** torch.arange(OUTCOME_LENGTH - 1).flip(0)).sum(1)
    counts = torch.bincount(numbers, minlength=VOCAB ** (OUTCOME_LENGTH - 1))
    return chi_square_p_value(counts, outcome_probs(engine, asked[0].sampling) * len(asked))


def outcome_probs(engine: SmallEngine, params: SamplingParams) -> Tensor:
    """Return the exact probability of each outcome, the first token summed over."""
    probs = torch.ones(1, dtype=torch.float64)
    texts: list[tuple[int, ...]] = [()]
    for _ in range(OUTCOME_LENGTH):
        rows = []
        for text in texts:
            logits = plain_logits(engine.target, [*PROMPT, *text])[-1].tolist()
            rows.append(reference_probs(logits, params))
        probs = (probs.unsqueeze(1) * torch.tensor(rows, dtype=torch.float64)).flatten()
        texts = [(*text, token) for text in texts for token in range(VOCAB)]
    return probs.view(VOCAB, -1).sum(0)


def sampled_cases() -> list[tuple[Case, dict[str, float]]]:
    """Every case under one kind of sampling, in turn."""
    return [(case, SAMPLINGS[n % len(SAMPLINGS)]) for n, case in enumerate(cases())]


@pytest.mark.parametrize(
    ("case", "sampling"), sampled_cases(), ids=lambda value: str(value).replace(" ", "_")
)
def test_sampled_outcomes_are_distributed_as_the_target_alone(
    case: Case, sampling: dict[str, float]
) -> None:
    """Chi-square over all outcomes of three tokens, rare ones pooled; false-alarm rate 1e-4."""
    assert outcome_p_value(case, sampling) > FALSE_ALARM


POSITION_S = 0.012
"""At 48 rows, some positions of each draft pay and some do not."""

ADAPTIVE = [case for case in cases() if case.setting.is_adaptive and case.name != "self_sparse"]
"""On prompts as short as these self_sparse drafts nothing."""


def unseeded_p_value(
    case: Case, monkeypatch: pytest.MonkeyPatch, mutate: Callable[[Drafter], None] | None = None
) -> tuple[float, float]:
    """Return the p-value of answers whose drafts follow the load, and draft tokens a pass.

    Requests without a seed get one from a count, so that the test says the same in every run.
    """
    numbers = itertools.count()
    monkeypatch.setattr(sampler_rows, "new_generator", lambda seed: new_generator(next(numbers)))
    engine = sampling_engine(case.name, POSITION_S)
    if mutate is not None:
        mutate(engine.drafters[case.setting.method])
    asked = sampled_requests(case.setting, SAMPLES, temperature=1.0)
    p_value = p_value_of(engine, [unseeded(each) for each in asked])
    traces = engine.traces().values()
    passes = sum(trace.passes for trace in traces)
    return p_value, sum(trace.drafted for trace in traces) / passes


def unseeded(asked: EngineRequest) -> EngineRequest:
    return replace(asked, sampling=replace(asked.sampling, seed=None))


@pytest.mark.parametrize("case", ADAPTIVE, ids=str)
def test_drafts_that_end_by_load_and_chances_leave_answers_distributed_as_the_target_alone(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    p_value, drafted = unseeded_p_value(case, monkeypatch)
    assert p_value > FALSE_ALARM
    assert 0 < drafted < 0.8 * case.setting.k


def test_plain_decoding_is_distributed_as_the_target_alone() -> None:
    assert outcome_p_value(Case(name="prompt_lookup", setting=OFF), SAMPLINGS[0]) > FALSE_ALARM


@pytest.mark.parametrize("name", [*DRAFTERS, *SCRIPTED])
def test_a_drafter_draws_from_the_probabilities_it_claims(name: str) -> None:
    """Chi-square of drawn tokens against claims, siblings drawn before taken out of them."""
    p_values = [
        claims_p_value(sampling_engine(name), setting)
        for setting in (DRAFTERS | SCRIPTED)[name].settings
        if setting.rule is AcceptanceRule.REJECTION
    ]
    assert min(p_values) > FALSE_ALARM


def test_a_drafter_that_claims_other_probabilities_is_flagged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = sampling_engine("draft_model")
    drafter = engine.drafters[Method.DRAFT_MODEL]
    propose = drafter.propose

    def boast(asks: Sequence[DraftAsk]) -> list[Draft]:
        return [
            Draft(
                token_ids=draft.token_ids, probs=None if draft.probs is None else draft.probs**0.5
            )
            for draft in propose(asks)
        ]

    monkeypatch.setattr(drafter, "propose", boast)
    assert claims_p_value(engine, Setting(method=Method.DRAFT_MODEL, k=3)) < FALSE_ALARM


def claims_p_value(engine: SmallEngine, setting: Setting) -> float:
    """Return the p-value of everything a drafter drew while sampled rows ran."""
    drafter = engine.drafters[setting.method]
    drafts = watched_drafts(drafter)
    engine.run(sampled_requests(setting, 150, temperature=1.1))
    tokens, claims = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, VOCAB)]
    for draft in drafts:
        if draft.probs is not None and draft.token_ids:
            columns = columns_of(drafter, draft)
            parents = draft.parents or range(-1, len(columns) - 1)
            claimed = sibling_claims(draft.probs, columns, parents)
            is_drawn = claimed.sum(1) > 0
            tokens.append(torch.tensor(columns)[is_drawn])
            claims.append(claimed[is_drawn])
    return claimed_probs_p_value(torch.cat(tokens), torch.cat(claims))


def watched_drafts(drafter: Drafter) -> list[Draft]:
    """Return a list that grows with everything the drafter proposes from now on."""
    seen: list[Draft] = []
    propose = drafter.propose

    def watched(asks: Sequence[DraftAsk]) -> list[Draft]:
        drafts = propose(asks)
        seen.extend(drafts)
        return drafts

    drafter.propose = watched  # type: ignore[method-assign]
    return seen


def columns_of(drafter: Drafter, draft: Draft) -> list[int]:
    if drafter.draft_vocab is None:
        return list(draft.token_ids)
    vocab = drafter.draft_vocab.tolist()
    return [vocab.index(token) for token in draft.token_ids]


@pytest.mark.parametrize("name", list(SCRIPTED))
def test_every_token_under_typical_acceptance_is_typical(name: str) -> None:
    """All but the one that comes with the prompt; and more are kept than a lossless rule keeps."""
    (setting, *_) = [each for each in SCRIPTED[name].settings if each.is_tree]
    kept = {}
    for rule in (AcceptanceRule.REJECTION, AcceptanceRule.TYPICAL):
        engine = sampling_engine(name)
        ruled = Setting.from_dict({**setting.to_dict(), "rule": rule})
        deltas = engine.run(sampled_requests(ruled, 100, temperature=1.0))
        kept[rule] = sum(trace.accepted for trace in engine.traces().values())
    for each in deltas.values():
        text = [*PROMPT, *tokens_of(each)]
        probs = plain_logits(engine.target, text).softmax(-1)[len(PROMPT) : -1]
        chosen = probs.gather(1, torch.tensor(text[len(PROMPT) + 1 :]).unsqueeze(1)).squeeze(1)
        assert (chosen.double() > typical_thresholds(probs) - 1e-5).all()
    assert kept[AcceptanceRule.TYPICAL] > 1.2 * kept[AcceptanceRule.REJECTION]


@EACH_CASE
def test_at_temperature_0_the_rule_makes_no_difference(case: Case) -> None:
    texts = []
    for rule in AcceptanceRule:
        ruled = Setting.from_dict({**case.setting.to_dict(), "rule": rule})
        asked = [request(str(n), [n, 3, n], setting=ruled, max_tokens=12) for n in range(4)]
        deltas = case.engine().run(asked)
        texts.append([tokens_of(deltas[ask.request_id]) for ask in asked])
    assert texts[0] == texts[1] == texts[2]
