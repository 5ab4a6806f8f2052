"""Wrong engines are caught: classic bugs, put in at run time, each make a contract check fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from collectors.records import Method, Setting
from tests.contracts.drafter_cases import (
    VOCAB,
    Case,
    assert_cache_is_that_of_a_fresh_prefill,
    greedy,
)
from tests.contracts.test_drafter_sampling import (
    FALSE_ALARM,
    columns_of,
    outcome_p_value,
    unseeded_p_value,
)
from tests.tuner.engine.harness import prompts, random_decoder, request, tokens_of
from tuner.engine import core as core_module
from tuner.engine import verdicts
from tuner.engine.core import EngineCore
from tuner.engine.drafters import draft_cache
from tuner.engine.drafters.base import NO_DRAFT, Draft, DraftAsk, Drafter
from tuner.engine.model import passes
from tuner.engine.model.slots import FeatureSlots, KvSlots
from tuner.engine.row import Row
from tuner.engine.verdicts import Verdict
from tuner.engine.verification import verify, verify_tree
from tuner.engine.verification.penalties import PenaltyBlock, PenaltyState
from tuner.engine.verification.rows import Block

CHAINS = (
    Case(name="draft_model", setting=Setting(method=Method.DRAFT_MODEL, k=4)),
    Case(
        name="prompt_lookup",
        setting=Setting(method=Method.PROMPT_LOOKUP, k=4, lookup_min=1, lookup_max=2),
    ),
)
GUESSED_TREES = Case(
    name="scripted_guesses",
    setting=Setting(method=Method.MEDUSA, k=4, tree_nodes=24, tree_width=4),
)
DRAWN_TREES = Case(
    name="scripted_draws",
    setting=Setting(method=Method.EAGLE, k=3, tree_nodes=12, tree_width=3),
)
PENALTIES = {"frequency_penalty": 1.5, "presence_penalty": 0.5, "repetition_penalty": 1.3}


def num_wrong_answers(*cases: Case, **sampling: float) -> int:
    """Greedy answers of 8 rows under each case that differ from plain decoding's."""
    wrong = 0
    for case in cases:
        engine = case.engine(draft=random_decoder(1, VOCAB, num_layers=1))
        asked = [
            request(str(n), prompt, setting=case.setting, max_tokens=16 + 2 * n, **sampling)
            for n, prompt in enumerate(prompts(8, VOCAB, seed=11))
        ]
        deltas = engine.run(asked)
        for ask in asked:
            wanted = greedy(ask.prompt_ids, ask.sampling.max_tokens)
            if sampling:
                plain = request("plain", ask.prompt_ids, max_tokens=len(wanted), **sampling)
                wanted = tokens_of(case.engine().run([plain])["plain"])
            wrong += tokens_of(deltas[ask.request_id]) != wanted
    return wrong


def test_the_engine_as_it_is_gives_no_wrong_answer() -> None:
    assert num_wrong_answers(*CHAINS, GUESSED_TREES) == 0
    assert num_wrong_answers(CHAINS[0], GUESSED_TREES, **PENALTIES) == 0


@pytest.mark.parametrize("case", [CHAINS[0], GUESSED_TREES], ids=str)
def test_a_rollback_one_entry_short_is_caught(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    right = EngineCore._commit_row

    def keep_one_too_many(self, item, verdict, now_s, load, report):  # type: ignore[no-untyped-def]
        delta = right(self, item, verdict, now_s, load, report)
        rejected = len(item.draft.token_ids) - verdict.accepted
        if item.is_decode and rejected:
            engine_slots = self._slots
            last = item.row.kv_length
            for layer in (*engine_slots.keys, *engine_slots.values):
                layer[item.row.slot, :, last - 1] = layer[item.row.slot, :, last]
        return delta

    monkeypatch.setattr(EngineCore, "_commit_row", keep_one_too_many)
    assert num_wrong_answers(case) > 0


def test_a_slot_moved_without_its_kv_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KvSlots, "move", lambda self, source, target, length: None)
    assert num_wrong_answers(CHAINS[0]) > 0


@pytest.mark.parametrize("case", [CHAINS[0], GUESSED_TREES], ids=str)
def test_the_bonus_token_taken_from_the_wrong_position_is_caught(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = core_module.judge

    def shifted(logits: Tensor, **parts: object) -> list[Verdict]:
        return right(logits.roll(1, dims=0), **parts)  # type: ignore[arg-type]

    monkeypatch.setattr(core_module, "judge", shifted)
    assert num_wrong_answers(case) > 0


def test_accepting_without_looking_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = core_module.judge

    def credulous(logits: Tensor, *, rows: Sequence[Row], drafts: Sequence[Draft], vocab_of):  # type: ignore[no-untyped-def]
        verdicts = right(logits, rows=rows, drafts=drafts, vocab_of=vocab_of)
        return [
            Verdict(
                accepted=len(draft.token_ids),
                token_ids=(*draft.token_ids, verdict.token_ids[-1]),
            )
            for draft, verdict in zip(drafts, verdicts, strict=True)
        ]

    monkeypatch.setattr(core_module, "judge", credulous)
    assert num_wrong_answers(*CHAINS) > 0


def test_a_tree_whose_parents_are_mixed_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Block.from_drafts

    def mixed_up(drafts, parents):  # type: ignore[no-untyped-def]
        return right(drafts, [tree and [max(-1, each - 1) for each in tree] for tree in parents])

    monkeypatch.setattr(verdicts.Block, "from_drafts", mixed_up)
    assert num_wrong_answers(GUESSED_TREES) > 0


def test_a_path_whose_kv_is_left_where_it_was_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KvSlots, "gather", lambda self, slot, start, entries: None)
    assert num_wrong_answers(GUESSED_TREES) > 0


def test_a_path_whose_hidden_states_are_left_where_they_were_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They show in no output, only in later drafts: so the states themselves are compared."""

    def check() -> None:
        case = Case(
            name="medusa", setting=Setting(method=Method.MEDUSA, k=3, tree_nodes=30, tree_width=8)
        )
        engine = case.engine()
        for number, prompt in enumerate(prompts(3, VOCAB, seed=4)):
            engine.core.submit(request(str(number), prompt, setting=case.setting, max_tokens=90))
        for _ in range(15):
            engine.core.step()
        assert_cache_is_that_of_a_fresh_prefill(engine)

    check()
    monkeypatch.setattr(FeatureSlots, "gather", lambda self, slot, start, entries: None)
    with pytest.raises(AssertionError, match="not close"):
        check()


def test_branches_that_see_each_other_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_hide_other_branches", lambda mask, span, kind: None)
    assert num_wrong_answers(GUESSED_TREES) > 0


@pytest.mark.parametrize("case", [CHAINS[0], GUESSED_TREES], ids=str)
def test_penalties_applied_once_per_block_are_caught(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = PenaltyState.block

    def once(self: PenaltyState, drafted: Sequence[int], parents: Sequence[int]) -> PenaltyBlock:
        block = right(self, drafted, parents)
        first = np.zeros(len(drafted) + 1, dtype=np.int64)
        return replace(block, divisors=block.divisors[first], deductions=block.deductions[first])

    monkeypatch.setattr(PenaltyState, "block", once)
    assert num_wrong_answers(case, **PENALTIES) > 0


def _plain_target(target: Tensor, draft: Tensor) -> Tensor:
    return target


def _patch_chain_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(verify.verify_chain.__kwdefaults__, "residual", _plain_target)


def _patch_tree_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_tree, "positive_part", _plain_target)


@pytest.mark.parametrize(
    ("case", "patch"),
    [(CHAINS[0], _patch_chain_residual), (DRAWN_TREES, _patch_tree_residual)],
    ids=["chain", "tree"],
)
def test_a_residual_that_is_the_plain_target_is_caught_by_what_is_drawn(
    case: Case, patch: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome_p_value(case, {"temperature": 1.0}) > FALSE_ALARM
    patch(monkeypatch)
    assert outcome_p_value(case, {"temperature": 1.0}) < FALSE_ALARM


@pytest.mark.parametrize("method", [Method.DRAFT_MODEL, Method.PARD])
def test_drafted_tokens_kept_by_their_own_probability_are_caught_by_what_is_drawn(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the adaptive mode must never do: judge a token instead of its position."""

    def choose(drafter: Drafter) -> None:
        right = drafter.propose

        def chosen(asks: Sequence[DraftAsk]) -> list[Draft]:
            return [_likely_part(drafter, draft) for draft in right(asks)]

        monkeypatch.setattr(drafter, "propose", chosen)

    case = Case(name=method.value, setting=Setting(method=method, k=6, is_adaptive=True))
    assert unseeded_p_value(case, monkeypatch)[0] > FALSE_ALARM
    assert unseeded_p_value(case, monkeypatch, choose)[0] < FALSE_ALARM


def _likely_part(drafter: Drafter, draft: Draft) -> Draft:
    """Return a draft without its first token less probable than an even share, and what follows."""
    if draft.probs is None:
        return draft
    own = draft.probs.gather(1, torch.tensor(columns_of(drafter, draft)).unsqueeze(1)).squeeze(1)
    length = int((own >= 1 / draft.probs.shape[1]).cumprod(0).sum())
    if not length:
        return NO_DRAFT
    return replace(draft, token_ids=draft.token_ids[:length], probs=draft.probs[:length])


def test_a_stale_draft_cache_costs_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong draft cache never shows in the output, so it has to show in what is accepted."""

    def acceptance() -> float:
        engine = CHAINS[0].engine()
        engine.run(
            [
                request(str(n), prompt, setting=CHAINS[0].setting, max_tokens=24)
                for n, prompt in enumerate(prompts(8, VOCAB, seed=12))
            ]
        )
        traces = engine.traces().values()
        return sum(t.accepted for t in traces) / sum(t.drafted for t in traces)

    assert acceptance() > 0.99

    def forget_rollback(self: draft_cache.Read, token_ids: Sequence[int]) -> int:
        self.length = min(self.length + len(self.guesses) + 1, len(token_ids) - 1)
        self.guesses.clear()
        return self.length

    monkeypatch.setattr(draft_cache.Read, "keep_committed", forget_rollback)
    assert acceptance() < 0.9
