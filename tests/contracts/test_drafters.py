"""What every drafting method must hold, run on each of them through the real core."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from collectors.records import OFF, FinishReason, Method, Plan, Setting
from tests.contracts.drafter_cases import (
    EACH_CASE,
    VOCAB,
    Case,
    assert_cache_is_that_of_a_fresh_prefill,
    cases,
    greedy,
    weak_parts,
)
from tests.tuner.engine.harness import (
    SCRIPTED,
    SmallEngine,
    prompts,
    request,
    settings_under_test,
    small_engine,
    tokens_of,
)
from tuner.engine.drafters.base import Draft, DraftAsk
from tuner.engine.drafters.draft_model import DraftModelDrafter

EACH_DRAFT = pytest.mark.parametrize(
    "make", [Case.engine, Case.weak_engine], ids=["good draft", "weak draft"]
)


@EACH_CASE
@EACH_DRAFT
def test_greedy_output_equals_a_cacheless_reference(
    case: Case, make: Callable[[Case], SmallEngine]
) -> None:
    asked = [
        request(str(number), prompt, setting=case.setting, max_tokens=24)
        for number, prompt in enumerate(prompts(8, VOCAB))
    ]
    deltas = make(case).run(asked)
    for ask in asked:
        assert tokens_of(deltas[ask.request_id]) == greedy(ask.prompt_ids, 24)


@EACH_CASE
def test_every_token_kept_saves_a_pass_and_none_is_kept_that_was_not_drafted(case: Case) -> None:
    engine = case.engine()
    looping = greedy([3], 60)
    engine.run([request("a", [3, *looping], setting=case.setting, max_tokens=40)])
    trace = engine.traces()["a"]
    assert trace.passes == 40 - 1 - trace.accepted
    assert trace.drafted >= trace.accepted
    assert trace.drafted > 0
    if case.is_skilled:
        assert trace.accepted > 0
    outcomes = [
        outcome for step in engine.steps() for group in step.groups for outcome in group.outcomes
    ]
    assert all(each.accepted <= each.drafted <= case.setting.k for each in outcomes)


@EACH_CASE
def test_valid_kv_after_rollback_equals_a_fresh_prefill(case: Case) -> None:
    engine = case.weak_engine()
    for number, prompt in enumerate(prompts(3, VOCAB, seed=4)):
        engine.core.submit(request(str(number), prompt, setting=case.setting, max_tokens=100))
    for _ in range(7):
        engine.core.step()
    assert engine.core.num_running == 3
    assert_cache_is_that_of_a_fresh_prefill(engine)


def test_the_draft_cache_never_claims_more_than_was_committed() -> None:
    setting = Setting(method=Method.DRAFT_MODEL, k=5)
    engine = Case(name="draft_model", setting=setting).weak_engine()
    drafter = engine.drafters[Method.DRAFT_MODEL]
    assert isinstance(drafter, DraftModelDrafter)
    engine.core.submit(request("a", [1, 2, 3], setting=setting, max_tokens=90))
    for _ in range(10):
        engine.core.step()
        (row,) = engine.core._rows
        assert drafter.cached_length(0) <= len(row.token_ids)


@EACH_CASE
def test_a_row_alone_and_among_others_gets_the_same_tokens(case: Case) -> None:
    asked = [
        request(
            str(number), prompt, setting=case.setting, temperature=0.8, seed=number, max_tokens=16
        )
        for number, prompt in enumerate(prompts(6, VOCAB, seed=2))
    ]
    together = case.weak_engine().run(asked)
    for ask in asked[:3]:
        alone = case.weak_engine().run([ask])
        assert tokens_of(alone[ask.request_id]) == tokens_of(together[ask.request_id])


def test_a_drafter_without_a_guess_is_plain_decoding() -> None:
    setting = Setting(method=Method.PROMPT_LOOKUP, k=5, lookup_min=3, lookup_max=3)
    engine = Case(name="prompt_lookup", setting=setting).engine()
    deltas = engine.run([request("a", [5, 8], setting=setting, max_tokens=3)])
    assert tokens_of(deltas["a"]) == greedy([5, 8], 3)
    assert engine.traces()["a"].drafted == 0


@pytest.mark.parametrize("drafters", [None, tuple(SCRIPTED)], ids=["ours", "scripted"])
def test_switching_method_at_every_step_changes_no_token(drafters: tuple[str, ...] | None) -> None:
    engine = small_engine(vocab_size=VOCAB, drafters=drafters, **weak_parts())  # type: ignore[arg-type]
    settings = [each.setting for each in cases() if drafters and each.name in drafters]
    asked = [
        request(str(number), prompt, max_tokens=50)
        for number, prompt in enumerate(prompts(6, VOCAB, seed=5))
    ]
    for ask in asked:
        engine.core.submit(ask)
    choices = itertools.cycle([OFF, *(settings or settings_under_test())])
    deltas = engine.drain(lambda step: engine.plan.replace(Plan(default=next(choices))))
    for ask in asked:
        assert tokens_of(deltas[ask.request_id]) == greedy(ask.prompt_ids, 50)
    assert len({step.plan_digest for step in engine.steps()}) > 3


@pytest.mark.parametrize(
    "case",
    [each for each in cases() if each.name != "lookahead" and not each.setting.is_adaptive],
    ids=str,
)
def test_going_back_to_a_method_drafts_as_a_drafter_that_reads_the_text_anew(case: Case) -> None:
    """What it caches has fallen behind by then.

    Lookahead learns on the way, and so does the adaptive mode how long drafts shall be.
    """
    engine = case.engine()
    engine.core.submit(request("a", [3, *greedy([3], 30)], max_tokens=90))
    engine.plan.replace(Plan(default=case.setting))
    for _ in range(4):
        engine.core.step()
    engine.plan.replace(Plan(default=OFF))
    for _ in range(7):
        engine.core.step()
    text = list(engine.core._rows[0].token_ids)
    engine.plan.replace(Plan(default=case.setting))
    anew = case.engine()
    anew.core.submit(request("a", text[:-1], setting=case.setting, max_tokens=50))
    while not anew.core.num_running or not anew.core._rows[0].is_decoding:
        anew.core.step()
    assert anew.core._rows[0].token_ids == text
    back, fresh = (_next_draft(each, case) for each in (engine, anew))
    assert back.token_ids == fresh.token_ids
    assert back.parents == fresh.parents


def _next_draft(engine: SmallEngine, case: Case) -> Draft:
    """Do a step and return what was drafted in it."""
    seen: list[Draft] = []
    drafter = engine.drafters[case.setting.method]
    propose = drafter.propose

    def watched(asks: Sequence[DraftAsk]) -> list[Draft]:
        seen.extend(propose(asks))
        return seen

    drafter.propose = watched  # type: ignore[method-assign]
    engine.core.step()
    return seen[0]


@EACH_CASE
def test_cancelling_one_row_leaves_the_others_alone(case: Case) -> None:
    engine = case.engine()
    asked = [
        request(str(number), prompt, setting=case.setting, max_tokens=30)
        for number, prompt in enumerate(prompts(5, VOCAB, seed=6))
    ]
    late = request("late", [1, 4, 1, 4], setting=case.setting, max_tokens=20)
    for ask in asked:
        engine.core.submit(ask)

    def cancel_in_mid_answer(step: int) -> None:
        if step == 4:
            assert engine.core.cancel("1")
            engine.core.submit(late)

    deltas = engine.drain(cancel_in_mid_answer)
    assert engine.core.num_running == 0
    for ask in (*asked, late):
        if ask.request_id != "1":
            wanted = greedy(ask.prompt_ids, ask.sampling.max_tokens)
            assert tokens_of(deltas[ask.request_id]) == wanted
    assert engine.traces()["1"].finish_reason is FinishReason.CANCELLED
