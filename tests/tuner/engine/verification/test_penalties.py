from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tuner.engine.verification.exactness import assert_penalties_grow_within_a_block
from tests.tuner.engine.verification.reference_sampling import reference_logits
from tuner.engine.request import SamplingParams
from tuner.engine.verification.logit_edits import edit_logits
from tuner.engine.verification.penalties import PenaltyState
from tuner.engine.verification.rows import Block, RowSampler

PARAMS = SamplingParams(repetition_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.1)


def test_positions_of_a_block_count_the_drafted_tokens_before_them() -> None:
    assert_penalties_grow_within_a_block(PenaltyState)


def test_long_prompts_and_outputs_are_counted_whole() -> None:
    vocab_size = 700
    generator = torch.Generator().manual_seed(1)
    prompt = torch.randint(0, vocab_size, (400,), generator=generator).tolist()
    output = torch.randint(0, vocab_size, (300,), generator=generator).tolist()
    row = RowSampler(PARAMS, prompt_ids=prompt, vocab_size=vocab_size)
    for first in range(0, len(output), 7):
        row.commit(output[first : first + 7])
    raw = torch.randn(3, vocab_size, generator=generator)
    edited = edit_logits(raw, Block.from_drafts([[5, 6]]), [row])
    for position, drafted in enumerate(([], [5], [5, 6])):
        wanted = reference_logits(
            raw[position].tolist(), PARAMS, prompt=prompt, output=[*output, *drafted]
        )
        torch.testing.assert_close(edited[position], torch.tensor(wanted))


def test_positions_of_a_tree_count_their_ancestors_only() -> None:
    """Frequency penalty 0.5 after 7, 7 and after 9, with sibling branches in between."""
    params = SamplingParams(
        frequency_penalty=0.5, presence_penalty=0.25, repetition_penalty=1.3, min_tokens=3
    )
    row = RowSampler(params, prompt_ids=[1, 9], eos_ids=[4], vocab_size=12)
    row.commit([2])
    draft, parents = [7, 9, 7, 3, 9, 7], [-1, -1, 0, 1, 2, 3]
    raw = torch.randn(len(draft) + 1, 12, generator=torch.Generator().manual_seed(4))
    edited = edit_logits(raw, Block.from_drafts([draft], [parents]), [row])
    for position in range(len(draft) + 1):
        path: list[int] = []
        node = position - 1
        while node >= 0:
            path.insert(0, draft[node])
            node = parents[node]
        wanted = reference_logits(
            raw[position].tolist(), params, prompt=[1, 9], output=[2, *path], end_ids=[4]
        )
        torch.testing.assert_close(edited[position], torch.tensor(wanted))


def test_frequency_penalty_at_the_positions_of_an_accepted_block() -> None:
    row = RowSampler(SamplingParams(frequency_penalty=0.5), prompt_ids=[1], vocab_size=12)
    for parents in (None, [-1, 0, 1]):
        edited = edit_logits(torch.zeros(4, 12), Block.from_drafts([[7, 7, 9]], [parents]), [row])
        assert (edited[3, 7], edited[3, 9]) == (-1.0, -0.5)


def test_asking_for_a_block_counts_nothing() -> None:
    state = PenaltyState(PARAMS, [1])
    before = state.block([], [])
    state.block([1, 2, 3], [-1, 0, 1])
    after = state.block([], [])
    assert np.array_equal(before.token_ids, after.token_ids)
    assert np.array_equal(before.deductions, after.deductions)


def test_prompt_tokens_are_kept_only_where_the_repetition_penalty_needs_them() -> None:
    state = PenaltyState(SamplingParams(frequency_penalty=1.0), range(1000))
    assert len(state.block([], []).token_ids) == 0


@pytest.mark.parametrize("penalty", [0.5, 1.3])
def test_repetition_penalty_equals_that_of_transformers(penalty: float) -> None:
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    raw = torch.randn(1, 50, generator=torch.Generator().manual_seed(2))
    peer = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([[3, 9, 9, 20]]), raw.clone())
    row = RowSampler(SamplingParams(repetition_penalty=penalty), prompt_ids=[3, 9], vocab_size=50)
    row.commit([9, 20])
    torch.testing.assert_close(edit_logits(raw, Block.from_drafts([[]]), [row]), peer)


def test_more_distinct_output_tokens_than_the_first_allocation_are_counted() -> None:
    state = PenaltyState(PARAMS, [])
    state.add(list(range(200)))
    state.add([150])
    block = state.block([], [])
    counted = dict(zip(block.token_ids.tolist(), block.deductions[0].tolist(), strict=True))
    assert counted[149] == pytest.approx(0.3 + 0.1)
    assert counted[150] == pytest.approx(2 * 0.3 + 0.1)
