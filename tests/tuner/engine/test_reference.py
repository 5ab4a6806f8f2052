"""Reference steps: now and then a drafting step runs plain, and changes no token."""

from __future__ import annotations

import random

import pytest

from collectors.records import OFF, DecodeStep, Method, Plan, Setting
from tests.contracts.drafter_cases import EACH_CASE, VOCAB, Case, greedy
from tests.tuner.engine.harness import SmallEngine, prompts, request, tokens_of
from tuner.engine.reference import ReferenceTurns

LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=3, lookup_min=1, lookup_max=3)


def lookup_engine(interval: int = 2, default: Setting = LOOKUP) -> SmallEngine:
    engine = Case(name="prompt_lookup", setting=LOOKUP).engine(reference_interval=interval)
    engine.plan.replace(Plan(default=default))
    return engine


def references(engine: SmallEngine) -> list[DecodeStep]:
    return [step for step in engine.steps() if step.is_reference]


@EACH_CASE
def test_greedy_output_is_the_targets_with_a_reference_step_every_two(case: Case) -> None:
    engine = case.weak_engine(reference_interval=2)
    engine.plan.replace(Plan(default=case.setting))
    asked = [
        request(str(number), prompt, max_tokens=30)
        for number, prompt in enumerate(prompts(6, VOCAB, seed=3))
    ]
    deltas = engine.run(asked)
    for ask in asked:
        assert tokens_of(deltas[ask.request_id]) == greedy(ask.prompt_ids, 30)
    assert references(engine)


def test_a_reference_step_is_plain_for_every_row_and_reads_no_prompt() -> None:
    engine = lookup_engine()
    engine.run([request(str(n), p, max_tokens=30) for n, p in enumerate(prompts(12, VOCAB))])
    found = references(engine)
    assert found
    for step in found:
        assert {group.setting for group in step.groups} == {OFF}
        assert step.drafts == ()
        assert step.prefill_tokens == 0
        assert step.positions == step.running == sum(group.rows for group in step.groups)
        assert step.plan_digest == engine.plan.digest
    drafting = [step for step in engine.steps() if step.drafts]
    assert not any(step.is_reference for step in drafting)


def test_one_step_in_the_interval_is_a_reference_step_on_average() -> None:
    engine = lookup_engine(interval=8)
    for number in range(60):
        engine.run([request(str(number), [number % VOCAB, 3], max_tokens=60)])
    decoded = [step for step in engine.steps() if not step.prefill_tokens]
    assert len(references(engine)) == pytest.approx(len(decoded) / 8, rel=0.15)


def test_there_is_none_where_it_is_turned_off_or_nothing_would_draft() -> None:
    for engine in (lookup_engine(interval=0), lookup_engine(interval=1, default=OFF)):
        engine.run([request("a", [1, 2, 3], max_tokens=30)])
        assert references(engine) == []


def test_a_row_with_a_setting_of_its_own_or_a_replayed_one_keeps_its_drafts() -> None:
    for bound in (
        request("bound", [1, 2, 1, 2], setting=LOOKUP, max_tokens=60),
        request("bound", [1, 2, 1, 2], is_shadow=True, max_tokens=60),
    ):
        engine = lookup_engine(interval=1)
        engine.run([bound, request("free", [1, 2, 1, 2], max_tokens=90)])
        held = [step for step in engine.steps() if step.running == 2]
        assert held
        assert not any(step.is_reference for step in held)
        assert any(step.is_reference for step in engine.steps() if step.running == 1)


def test_a_request_is_reported_under_its_plan_whatever_its_last_step_was() -> None:
    engine = lookup_engine(interval=1)
    deltas = engine.run([request("a", [1, 2, 3], max_tokens=12)])
    assert engine.traces()["a"].setting == LOOKUP
    assert deltas["a"][-1].setting == LOOKUP


def test_the_spacing_varies_around_the_interval_and_repeats_with_the_seed() -> None:
    def gaps(seed: int) -> list[int]:
        turns = ReferenceTurns(64, random.Random(seed))
        return [turns._drawn() for _ in range(400)]

    assert gaps(1) == gaps(1)
    assert min(gaps(1)) >= 32
    assert max(gaps(1)) <= 96
    assert sum(gaps(1)) / 400 == pytest.approx(64, rel=0.05)
    assert len(set(gaps(1))) > 30
