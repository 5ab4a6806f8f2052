"""A draft model with other ids for the same text."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from collectors.records import OFF, Method, Plan, Setting
from tests.tuner.engine.drafters.asks import ask
from tests.tuner.engine.drafters.tokenizers import LETTERS, SYLLABLES, letters, syllables
from tests.tuner.engine.harness import (
    CONTEXT,
    SmallEngine,
    greedy_reference,
    prompts,
    random_decoder,
    random_weights,
    request,
    small_engine,
    tokens_of,
)
from tests.tuner.engine.server.running import tiny_settings
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.drafters.universal import UniversalDrafter
from tuner.engine.drafting import Drafting
from tuner.engine.loading import load_engine
from tuner.engine.model.codec import HfCodec
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.request import EngineRequest

VOCAB = len(LETTERS)
SETTING = Setting(method=Method.DRAFT_MODEL, k=4)


def renumbered(seed: int, order: Sequence[int]) -> LlamaDecoder:
    """The random decoder of this seed with its tokens in another order."""
    shape = random_decoder(seed, VOCAB).shape
    weights = random_weights(shape, seed, 0.5)
    embedding, head = weights.pop("embed_tokens.weight"), weights.pop("lm_head.weight")
    rows = torch.tensor(order)
    return LlamaDecoder(shape, weights, embedding=embedding[rows], head=head[rows])


def drafter_of(draft: LlamaDecoder, codec: HfCodec, **eos: Sequence[int]) -> UniversalDrafter:
    return UniversalDrafter(
        draft,
        draft_codec=codec,
        target_codec=letters(eos_ids=eos.get("target_eos", ())),
        num_slots=8,
        max_context_tokens=CONTEXT,
        drafter_id="universal:small",
        drafter_hash="0",
    )


def engine_with(drafter: UniversalDrafter) -> SmallEngine:
    engine = small_engine(drafters=["draft_model"])
    drafting = Drafting({Method.DRAFT_MODEL: drafter}, max_context_tokens=CONTEXT)
    engine.core._drafting = drafting
    return engine


def same_model_other_ids() -> UniversalDrafter:
    order = list(reversed(range(VOCAB)))
    return drafter_of(renumbered(1, order), letters(LETTERS[::-1]))


def other_model_other_pieces() -> UniversalDrafter:
    return drafter_of(random_decoder(5, VOCAB + len(SYLLABLES)), syllables())


def asked_for(num: int, setting: Setting = SETTING) -> list[EngineRequest]:
    return [
        request(str(number), prompt, setting=setting, max_tokens=12 + 4 * number)
        for number, prompt in enumerate(prompts(num, VOCAB, seed=9))
    ]


def assert_right(engine: SmallEngine, asked: Sequence[EngineRequest], deltas) -> None:  # type: ignore[no-untyped-def]
    for one in asked:
        wanted = greedy_reference(engine.target, one.prompt_ids, one.sampling.max_tokens)
        assert tokens_of(deltas[one.request_id]) == wanted


def test_the_target_itself_under_other_ids_has_every_guess_kept() -> None:
    """Rows end one after the other, so that texts and KV also move between slots."""
    engine, asked = engine_with(same_model_other_ids()), asked_for(6)
    assert_right(engine, asked, engine.run(asked))
    traces = engine.traces().values()
    assert all(trace.accepted == trace.drafted > 0 for trace in traces)
    assert all(trace.passes < trace.completion_tokens / 3 for trace in traces)


def test_a_draft_that_cuts_words_elsewhere_changes_no_token() -> None:
    engine, asked = engine_with(other_model_other_pieces()), asked_for(6)
    assert_right(engine, asked, engine.run(asked))
    assert sum(trace.drafted for trace in engine.traces().values()) > 100


def test_adaptive_drafts_of_another_tokenizer_change_no_token_also_where_nothing_is_said() -> None:
    engine = engine_with(other_model_other_pieces())
    engine.core._drafting._adaptive.yields.add(1, 1, 1e-9)
    asked = asked_for(6, replace(SETTING, is_adaptive=True))
    assert_right(engine, asked, engine.run(asked))
    groups = [group for step in engine.steps() for group in step.groups]
    lengths = {outcome.drafted for group in groups for outcome in group.outcomes}
    assert {0} < lengths


def test_after_steps_without_speculation_the_draft_catches_up() -> None:
    engine = engine_with(same_model_other_ids())
    asked = [replace(one, setting=None) for one in asked_for(4)]
    for one in asked:
        engine.core.submit(one)
    plans = itertools.cycle([Plan(default=SETTING), Plan(default=OFF), Plan(default=OFF)])

    def switch(step: int) -> None:
        engine.plan.replace(next(plans))

    deltas = engine.drain(switch)
    assert_right(engine, asked, deltas)
    traces = engine.traces().values()
    assert all(trace.accepted == trace.drafted > 0 for trace in traces)


def test_what_was_kept_in_part_is_read_again_from_there() -> None:
    """The draft reads wrong guesses of its own; once refused they must not linger in its KV."""
    drafter = other_model_other_pieces()
    text = letters().encode("abcdefghiabce" * 4)
    with torch.inference_mode():
        for end in range(20, 40, 3):
            (grown,) = drafter.propose([ask(text[:end], SETTING)])
            (fresh,) = other_model_other_pieces().propose([ask(text[:end], SETTING)])
            assert grown == fresh


def test_the_end_of_the_draft_stands_for_the_end_of_the_target() -> None:
    always_x = random_decoder(2, VOCAB)
    always_x.logits = lambda hidden: torch.eye(VOCAB)[[VOCAB - 1]].expand(len(hidden), -1)  # type: ignore[method-assign]
    ending = letters(eos_ids=[VOCAB - 1])
    with torch.inference_mode():
        (draft,) = drafter_of(always_x, ending, target_eos=[3]).propose([ask([1, 2], SETTING)])
        (spelt,) = drafter_of(always_x, letters()).propose([ask([1, 2], SETTING)])
    assert draft.token_ids == (3,)
    assert spelt.token_ids == (VOCAB - 1,) * 4


def test_a_text_too_long_for_the_draft_is_decoded_plainly() -> None:
    draft = random_decoder(5, VOCAB)
    draft.shape = replace(draft.shape, max_positions=24)
    engine = engine_with(drafter_of(draft, letters(LETTERS[::-1])))
    asked = [request("a", [1, 2, 3] * 5, setting=SETTING, max_tokens=30)]
    assert_right(engine, asked, engine.run(asked))
    assert 0 < engine.traces()["a"].drafted < 40


def test_an_engine_takes_a_draft_of_another_tokenizer_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = write_tiny_model(tmp_path / "target")
    other = write_tiny_model(tmp_path / "other", seed=1, vocab_size=300)
    with caplog.at_level(logging.INFO):
        loaded = load_engine(replace(tiny_settings(target), draft=str(other)))
    (method,) = [m for m in loaded.capabilities.methods if m.method is Method.DRAFT_MODEL]
    assert method.drafter == "universal:other"
    assert "'other' has another tokenizer" in caplog.text
    prompt = tuple(loaded.codec.encode("the user is a person who reads the answer"))
    asked = request("a", prompt, setting=SETTING, max_tokens=24, ignore_eos=True)
    plain = replace(asked, request_id="b", setting=OFF)
    answers = {}
    for one in (asked, plain):
        loaded.core.submit(one)
        deltas = []
        while loaded.core.has_work:
            deltas.extend(loaded.core.step())
        answers[one.request_id] = deltas
    assert tokens_of(answers["a"]) == tokens_of(answers["b"])
    assert answers["a"][-1].counts.drafted > 0
