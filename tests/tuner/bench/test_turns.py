from __future__ import annotations

from pathlib import Path

import pytest

from collectors.records import OFF, DecodeStep, Method, Setting
from tuner.bench.questions import Encoded
from tuner.bench.turns import Turns
from tuner.engine.drafters.registry import load_drafters
from tuner.engine.limits import EngineLimits
from tuner.engine.loading import LoadedEngine, build_engine, load_target
from tuner.engine.settings import EngineSettings

LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=3, lookup_min=1, lookup_max=3)
NUM_TOKENS = 24


def loaded(model: Path) -> tuple[LoadedEngine, LoadedEngine]:
    limits = EngineLimits(max_rows=3, max_context_tokens=160, prefill_tokens=480)
    settings = EngineSettings(
        model=str(model), methods=(Method.PROMPT_LOOKUP,), limits=limits, threads=1
    )
    target = load_target(settings)
    engine = build_engine(settings, target, load_drafters(settings, target))
    return engine, build_engine(settings, target, {})


@pytest.fixture(scope="module")
def engines(roomy_model: Path) -> tuple[LoadedEngine, LoadedEngine]:
    return loaded(roomy_model)


@pytest.fixture
def questions(engines: tuple[LoadedEngine, LoadedEngine]) -> list[Encoded]:
    codec = engines[0].codec
    texts = {"rag": "the answer is short, the answer is short", "qa": "return the value as json"}
    return [
        Encoded(name=f"{category} 1", category=category, token_ids=tuple(codec.encode(text)))
        for category, text in texts.items()
    ]


def test_a_step_is_timed_but_for_the_first_in_which_drafters_read_the_prompts(
    engines: tuple[LoadedEngine, LoadedEngine], questions: list[Encoded]
) -> None:
    first, *others = Turns(*engines, NUM_TOKENS).answer(questions, LOOKUP)

    assert first.plain_s is None
    assert len(others) >= 2
    assert all(turn.plain_s is not None and turn.plain_s > 0 for turn in others)
    assert not any(turn.step.prefill_tokens for turn in (first, *others))


def test_a_question_that_has_ended_is_asked_again_without_a_name(parrot: Path) -> None:
    engine, plain = loaded(parrot)
    end = min(engine.codec.eos_ids)
    short = Encoded(name="qa 1", category="qa", token_ids=(7, end))
    long = Encoded(name="rag 2", category="rag", token_ids=(7, 11))

    turns = Turns(engine, plain, NUM_TOKENS).answer([short, long], OFF)

    # The first token of "qa 1" comes with the prefill and ends it; a prompt alone in its place
    # costs the step with it and the one after, and none else.
    assert [turn.plain_s is not None for turn in turns] == [
        False,
        False,
        *[True] * (NUM_TOKENS - 3),
    ]
    assert {turn.step.running for turn in turns} == {2}
    assert [{group.route for group in turn.step.groups} for turn in turns] == [
        {"rag 2"},
        *[{"rag 2", ""}] * (NUM_TOKENS - 2),
    ]
    assert not engine.core.has_work


def test_every_pass_of_every_question_is_kept_by_its_name(
    engines: tuple[LoadedEngine, LoadedEngine], questions: list[Encoded]
) -> None:
    turns = Turns(*engines, NUM_TOKENS).answer(questions, LOOKUP)

    delivered = {
        name: sum(
            group.tokens for turn in turns for group in turn.step.groups if group.route == name
        )
        for name in ("rag 1", "qa 1")
    }
    # The first token of each comes with the prefill.
    assert delivered == {"rag 1": NUM_TOKENS - 1, "qa 1": NUM_TOKENS - 1}


def test_the_plain_engine_holds_the_same_batch_at_every_pair_and_takes_both_places(
    engines: tuple[LoadedEngine, LoadedEngine], questions: list[Encoded]
) -> None:
    engine, plain = engines
    first = plain.journal.last_seq
    turns = Turns(engine, plain, NUM_TOKENS).answer(questions, OFF)
    beside = [
        record
        for record in plain.journal.page(first, 1000).records
        if isinstance(record, DecodeStep) and not record.prefill_tokens
    ]

    assert len(beside) == sum(turn.plain_s is not None for turn in turns) > 10
    assert {step.running for step in beside} == {len(questions)}
    ours = {turn.step.at for turn in turns if turn.plain_s is not None}
    order = ["own" if at in ours else "plain" for at in sorted([*ours, *(s.at for s in beside)])]
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert set(pairs) == {("own", "plain"), ("plain", "own")}


def test_other_questions_replace_those_beside(
    engines: tuple[LoadedEngine, LoadedEngine], questions: list[Encoded]
) -> None:
    engine, plain = engines
    turns = Turns(engine, plain, NUM_TOKENS)
    turns.answer(questions, LOOKUP)
    first = plain.journal.last_seq

    turns.answer(questions[:1], LOOKUP)

    records = plain.journal.page(first, 1000).records
    assert {record.running for record in records if isinstance(record, DecodeStep)} == {1}
