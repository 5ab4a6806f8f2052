"""PARD drafts against one fresh pass over all tokens and masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from collectors.records import Method, Setting
from tests.tuner.engine import tiny_heads
from tests.tuner.engine.harness import CONTEXT, random_decoder
from tuner.engine.drafters.base import Draft, DraftAsk
from tuner.engine.drafters.pard import PardDrafter
from tuner.engine.limits import EngineLimits
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.request import SamplingParams
from tuner.engine.verification.drawing import new_generator

VOCAB = 24
DECODER = random_decoder(1, VOCAB)
MASK = tiny_heads.Dice(6).matrix(DECODER.shape.hidden_size)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def fresh() -> PardDrafter:
    return tiny_heads.pard(DECODER, EngineLimits(max_rows=4, max_context_tokens=CONTEXT))


def ask(slot: int, token_ids: Sequence[int], k: int, temperature: float = 0.0) -> DraftAsk:
    return DraftAsk(
        slot=slot,
        token_ids=token_ids,
        k=k,
        num_nodes=k,
        route="chat",
        setting=Setting(method=Method.PARD, k=k),
        sampling=SamplingParams(temperature=temperature),
        generator=new_generator(3),
    )


def plain_logits(token_ids: Sequence[int], k: int) -> Tensor:
    """[k, V] of a sequence with k - 1 masks behind it, in one pass without a cache."""
    padded = [*token_ids, *[0] * (k - 1)]
    batch = lay_out([Span(slot=0, start=0, token_ids=padded)], DECODER.mask_kind)
    hidden = DECODER.embed(batch.token_ids)
    hidden[len(token_ids) :] = MASK
    return DECODER.logits(DECODER.forward_from(hidden, batch, DECODER.new_slots(1, CONTEXT)))[-k:]


def test_all_positions_come_from_one_pass_over_masks() -> None:
    token_ids = torch.randint(0, VOCAB, (60,), generator=new_generator(1)).tolist()
    drafter = fresh()
    for length in (3, 4, 9, 60):
        (draft,) = drafter.propose([ask(2, token_ids[:length], 5)])
        wanted = plain_logits(token_ids[:length], 5).argmax(-1)
        assert draft == Draft(token_ids=tuple(wanted.tolist()))
        assert drafter.cached_length(2) == length


def test_drawn_tokens_carry_the_distribution_each_was_drawn_from() -> None:
    (draft,) = fresh().propose([ask(0, [3, 1, 4], 4, temperature=0.6)])
    assert draft.probs is not None
    wanted = (plain_logits([3, 1, 4], 4) / 0.6).softmax(-1)
    torch.testing.assert_close(draft.probs, wanted, atol=1e-4, rtol=1e-3)


def test_rows_of_unequal_k_and_a_long_prompt_are_those_of_each_row_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tuner.engine.drafters.pard._CATCH_UP_TOKENS", 20)
    long = torch.randint(0, VOCAB, (90,), generator=new_generator(2)).tolist()
    rows = [(3, [5, 1], 7), (0, long, 2), (1, [9, 9, 9], 4)]
    together = fresh().propose([ask(*row) for row in rows])
    for (_, token_ids, k), draft in zip(rows, together, strict=True):
        assert list(draft.token_ids) == plain_logits(token_ids, k).argmax(-1).tolist()


def test_a_moved_row_keeps_what_was_read() -> None:
    drafter = fresh()
    drafter.propose([ask(3, [5, 1, 17], 4)])
    drafter.move(3, 0)
    assert (drafter.cached_length(3), drafter.cached_length(0)) == (0, 3)
    (draft,) = drafter.propose([ask(0, [5, 1, 17, 2, 2], 4)])
    assert list(draft.token_ids) == plain_logits([5, 1, 17, 2, 2], 4).argmax(-1).tolist()
