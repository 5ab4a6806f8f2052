"""The bundled target with its shipped draft: greedy equality and sampled distributions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from collectors.records import OFF, AcceptanceRule, Method, Setting
from tuner.bench.arms import DEFAULT_TREES, arms
from tuner.bench.driver import Driver, demo_prompts
from tuner.engine.limits import EngineLimits
from tuner.engine.loading import LoadedEngine, load_engine, load_target
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.model.weights import LoadedModel
from tuner.engine.request import EngineRequest, SamplingParams
from tuner.engine.settings import EngineSettings
from tuner.engine.verification.selfcheck import chi_square_p_value

pytestmark = pytest.mark.slow

FALSE_ALARM = 1e-4
TEMPERATURE = 0.6
SAMPLES = 600
SETTINGS = EngineSettings(
    limits=EngineLimits(max_rows=32, max_context_tokens=512, queue_limit=SAMPLES)
)


@pytest.fixture(scope="module")
def engine() -> LoadedEngine:
    return load_engine(SETTINGS)


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    return load_target(SETTINGS)


def test_the_shipped_draft_model_is_loaded(engine: LoadedEngine) -> None:
    assert Method.DRAFT_MODEL in [each.method for each in engine.capabilities.methods]


def test_greedy_answers_are_those_of_plain_decoding(engine: LoadedEngine) -> None:
    driver = Driver(engine, 32)
    prompts = demo_prompts(engine.codec, 5)
    plain = [driver.answers([prompt], OFF, logprobs=2)[0] for prompt in prompts]
    for setting in arms(engine.capabilities, (1, 3, 5, 8), DEFAULT_TREES):
        for expected, given in zip(plain, driver.answers(prompts, setting), strict=True):
            wanted = [token for delta in expected for token in delta.token_ids]
            tokens = [token for delta in given for token in delta.token_ids]
            assert tokens == wanted or _is_near_tie(expected, wanted, tokens)


def _is_near_tie(plain: Sequence[object], wanted: list[int], tokens: list[int]) -> bool:
    split = next(n for n, pair in enumerate(zip(wanted, tokens, strict=True)) if pair[0] != pair[1])
    tops = [token.top for delta in plain for token in delta.logprobs]  # type: ignore[attr-defined]
    return bool(tops[split][0][1] - tops[split][1][1] < 1e-4)


@pytest.mark.parametrize(
    "setting",
    [
        OFF,
        Setting(method=Method.DRAFT_MODEL, k=2),
        Setting(method=Method.DRAFT_MODEL, k=2, rule=AcceptanceRule.TOKEN_MATCH),
        Setting(method=Method.PROMPT_LOOKUP, k=2, lookup_min=1, lookup_max=2),
        Setting(
            method=Method.PROMPT_LOOKUP,
            k=2,
            lookup_min=1,
            lookup_max=2,
            rule=AcceptanceRule.TOKEN_MATCH,
        ),
    ],
    ids=lambda setting: setting.label,
)
def test_three_sampled_tokens_have_the_targets_distribution(
    engine: LoadedEngine, target: LoadedModel, setting: Setting
) -> None:
    """Chi-square over three-token outcomes, rare ones pooled; false-alarm rate 1e-4."""
    prompt = engine.codec.encode("The cat sat on the mat. The cat sat")
    drawn = _drawn(engine, prompt, setting)
    exact = _common_outcomes(target, prompt, least_prob=5 / SAMPLES)
    rest = 1 - sum(exact.values())
    observed = [drawn[outcome] for outcome in exact]
    p_value = chi_square_p_value(
        torch.tensor([*observed, SAMPLES - sum(observed)]),
        torch.tensor([*(prob * SAMPLES for prob in exact.values()), rest * SAMPLES]),
    )
    assert len(exact) >= 5
    assert p_value > FALSE_ALARM


def _drawn(
    engine: LoadedEngine, prompt: Sequence[int], setting: Setting
) -> Counter[tuple[int, ...]]:
    sampling = [
        SamplingParams(temperature=TEMPERATURE, max_tokens=3, seed=seed, ignore_eos=True)
        for seed in range(SAMPLES)
    ]
    for number, params in enumerate(sampling):
        engine.core.submit(
            EngineRequest(
                request_id=f"{setting.label}-{number}",
                prompt_ids=tuple(prompt),
                sampling=params,
                route="chat",
                setting=setting,
            )
        )
    tokens: dict[str, list[int]] = {}
    while engine.core.has_work:
        for delta in engine.core.step():
            tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
    return Counter(tuple(each) for each in tokens.values())


@torch.inference_mode()
def _common_outcomes(
    target: LoadedModel, prompt: Sequence[int], *, least_prob: float
) -> dict[tuple[int, ...], float]:
    """Every three-token outcome at least this likely, by expanding the likely prefixes."""
    probs: dict[tuple[int, ...], float] = {(): 1.0}
    slots = target.decoder.new_slots(1, 64)
    for _ in range(3):
        longer: dict[tuple[int, ...], float] = {}
        for outcome, mass in probs.items():
            ids = [*prompt, *outcome]
            batch = lay_out([Span(slot=0, start=0, token_ids=ids)], target.decoder.mask_kind)
            states = target.decoder.forward(batch, slots)[-1:]
            following = torch.softmax(target.decoder.logits(states)[0].double() / TEMPERATURE, -1)
            for token in (following * mass >= least_prob).nonzero().flatten().tolist():
                longer[(*outcome, token)] = mass * float(following[token])
        probs = longer
    return probs
