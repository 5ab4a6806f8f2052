"""The copied view against attention over the whole KV with everything else masked out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from collectors.records import Method, Setting
from tests.tuner.engine.drafters.asks import ask
from tests.tuner.engine.harness import CONTEXT, random_decoder
from tuner.engine.drafters.base import TargetView
from tuner.engine.drafters.self_sparse import SelfSparseDrafter
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.model.slots import KvSlots
from tuner.engine.request import SamplingParams

SINK, WINDOW, K = 2, 8, 3
SETTING = Setting(method=Method.SELF_SPARSE, k=K)
TEXT = torch.randint(0, 24, (CONTEXT,), generator=torch.Generator().manual_seed(3)).tolist()


@pytest.fixture
def target() -> LlamaDecoder:
    return random_decoder(1, 24)


def attached(target: LlamaDecoder) -> tuple[SelfSparseDrafter, KvSlots]:
    slots = target.new_slots(3, CONTEXT)
    return over(target, slots, min_saved_ratio=0.0), slots


def over(target: LlamaDecoder, slots: KvSlots, min_saved_ratio: float) -> SelfSparseDrafter:
    drafter = SelfSparseDrafter(
        sink_tokens=SINK, window_tokens=WINDOW, min_saved_ratio=min_saved_ratio
    )
    drafter.attach(TargetView(decoder=target, slots=slots, features=None))
    return drafter


@torch.inference_mode()
def commit(target: LlamaDecoder, slots: KvSlots, slot: int, start: int, end: int) -> None:
    span = Span(slot=slot, start=start, token_ids=TEXT[start:end])
    target.forward(lay_out([span], target.mask_kind), slots)


@torch.inference_mode()
def masked_guesses(target: LlamaDecoder, slots: KvSlots, length: int, first: int) -> list[int]:
    """Greedy tokens after TEXT[:length] where entries SINK to first are hidden."""
    scratch = target.new_slots(3, CONTEXT)
    held_layers, kept_layers = (*scratch.keys, *scratch.values), (*slots.keys, *slots.values)
    for held, kept in zip(held_layers, kept_layers, strict=True):
        held.copy_(kept)
    guesses: list[int] = []
    for step in range(K):
        token = TEXT[length - 1] if not guesses else guesses[-1]
        span = Span(slot=0, start=length - 1 + step, token_ids=[token])
        batch = lay_out([span], target.mask_kind)
        assert batch.short is not None
        mask = batch.short.mask.clone()
        mask[..., SINK:first] = float("-inf")
        batch = replace(batch, short=replace(batch.short, mask=mask))
        guesses.append(int(target.logits(target.forward(batch, scratch))[-1].argmax()))
    return guesses


@torch.inference_mode()
def test_drafts_equal_masked_attention_while_the_text_grows(target: LlamaDecoder) -> None:
    drafter, slots = attached(target)
    length, firsts = drafter.min_context_tokens, set()
    commit(target, slots, 0, 0, length - 1)
    for num_new in (1, 1, 3, 1, 2, 4, 1, 1, 5, 1):
        (draft,) = drafter.propose([ask(TEXT[:length], SETTING)])
        first = drafter._copied[0].first
        assert WINDOW <= length - 1 - first <= WINDOW + WINDOW // 4
        assert list(draft.token_ids) == masked_guesses(target, slots, length, first)
        firsts.add(first)
        commit(target, slots, 0, length - 1, length - 1 + num_new)
        length += num_new
    assert len(firsts) > 2


@torch.inference_mode()
def test_what_is_seen_is_the_view_and_not_the_whole_context(target: LlamaDecoder) -> None:
    drafter, slots = attached(target)
    commit(target, slots, 0, 0, 60)
    (before,) = drafter.propose([ask(TEXT[:61], SETTING)])
    for layer in (*slots.keys, *slots.values):
        layer[0, :, SINK : 60 - WINDOW] = 7.0
    drafter.release(0)
    (after,) = drafter.propose([ask(TEXT[:61], SETTING)])
    assert before.token_ids == after.token_ids
    for layer in (*slots.keys, *slots.values):
        layer[0, :, 60 - WINDOW : 60] = 7.0
    drafter.release(0)
    (spoilt,) = drafter.propose([ask(TEXT[:61], SETTING)])
    assert spoilt.token_ids != before.token_ids


def test_no_draft_is_made_where_the_view_would_be_more_than_half_of_the_context(
    target: LlamaDecoder,
) -> None:
    drafter, _ = attached(target)
    shortest = 2 * (SINK + WINDOW) + 1
    with torch.inference_mode():
        drafts = drafter.propose(
            [ask(TEXT[: shortest - 1], SETTING), ask(TEXT[:shortest], SETTING, slot=1)]
        )
    assert [len(draft.token_ids) for draft in drafts] == [0, K]


@torch.inference_mode()
def test_rows_of_different_lengths_are_drafted_as_if_alone(target: LlamaDecoder) -> None:
    drafter, slots = attached(target)
    lengths = (40, 75, 110)
    for slot, length in enumerate(lengths):
        commit(target, slots, slot, 0, length - 1)
    asks = [ask(TEXT[:length], SETTING, slot=slot) for slot, length in enumerate(lengths)]
    together = drafter.propose(asks)
    for slot in range(3):
        drafter.release(slot)
    assert together == [drafter.propose([each])[0] for each in asks]


@torch.inference_mode()
def test_a_moved_row_drafts_as_before(target: LlamaDecoder) -> None:
    drafter, slots = attached(target)
    commit(target, slots, 0, 0, 50)
    commit(target, slots, 2, 0, 89)
    drafter.propose([ask(TEXT[:51], SETTING)])
    (before,) = drafter.propose([ask(TEXT[:90], SETTING, slot=2)])
    slots.move(2, 0, 89)
    drafter.release(0)
    drafter.move(2, 0)
    (after,) = drafter.propose([ask(TEXT[:90], SETTING)])
    assert after.token_ids == before.token_ids


@torch.inference_mode()
def test_the_share_saved_is_the_unread_kv_over_all_that_a_target_pass_reads(
    target: LlamaDecoder,
) -> None:
    drafter, _ = attached(target)
    shape, float_bytes = target.shape, 4
    kv_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * float_bytes
    lengths = (40, 75, 110)
    full = target.num_weights * float_bytes + sum(lengths) * kv_bytes
    sparse = target.num_weights * float_bytes + len(lengths) * (SINK + WINDOW) * kv_bytes
    assert drafter.saved_ratio(lengths) == pytest.approx(1 - sparse / full)


@torch.inference_mode()
def test_drafts_begin_where_context_and_batch_let_them_save_the_least_share(
    target: LlamaDecoder,
) -> None:
    drafter, slots = attached(target)
    lengths = (60, 60, 60)
    for slot, length in enumerate(lengths):
        commit(target, slots, slot, 0, length - 1)
    asks = [ask(TEXT[:length], SETTING, slot=slot) for slot, length in enumerate(lengths)]
    alone, together = drafter.saved_ratio(lengths[:1]), drafter.saved_ratio(lengths)
    assert alone < together
    choosy = over(target, slots, min_saved_ratio=together)
    assert [draft.token_ids for draft in choosy.propose(asks[:1])] == [()]
    assert choosy.propose(asks) == drafter.propose(asks)


@torch.inference_mode()
def test_a_seeded_row_is_judged_alone_so_that_its_answer_depends_on_no_other(
    target: LlamaDecoder,
) -> None:
    drafter, slots = attached(target)
    lengths = (60, 60, 60)
    for slot, length in enumerate(lengths):
        commit(target, slots, slot, 0, length - 1)
    seeded = SamplingParams(temperature=1.0, seed=5)
    asks = [ask(TEXT[:length], SETTING, slot=slot) for slot, length in enumerate(lengths)]
    asks[0] = replace(asks[0], sampling=seeded)
    alone, others = drafter.saved_ratio(lengths[:1]), drafter.saved_ratio(lengths[1:])
    between = over(target, slots, min_saved_ratio=(alone + others) / 2)
    assert [len(draft.token_ids) for draft in between.propose(asks)] == [0, K, K]
    low = over(target, slots, min_saved_ratio=alone)
    assert [len(draft.token_ids) for draft in low.propose(asks[:1])] == [K]
