"""Live acceptance counts what greedy drafts would have got accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from tests.tuner.engine.training.conftest import counting_answers
from tuner.engine.training.batching import Batch, Shard, draft_index
from tuner.engine.training.head import DraftHead, Score
from tuner.engine.training.rehearsal import Rehearsal, can_rehearse
from tuner.engine.training.target import Target

VOCAB = torch.arange(0, 96, dtype=torch.int32)


class _Counting(DraftHead):
    """Counts on rightly up to a depth; from there on the right token is only its second choice."""

    method: ClassVar[str] = "counting"
    title: ClassVar[str] = "a head that counts"
    trained_depths: ClassVar[int] = 3

    def __init__(self, target: Target, num_right: int) -> None:
        super().__init__(target, VOCAB)
        self.output_rows = torch.eye(96)
        self._num_right = num_right

    def forward(self, batch: Batch, score: Score, depths: int) -> None:
        rows, columns = batch.known_places()
        for depth in range(depths):
            hidden = torch.zeros(len(rows), 96)
            place = torch.arange(len(rows))
            hidden[place, batch.draft_tokens[rows, columns]] = 1.0
            if depth >= self._num_right:
                hidden[:, 0] = 2.0
            score(depth, hidden, rows, columns)


@pytest.mark.parametrize(("num_right", "expected"), [(3, 7 / 2), (2, 7 / 3), (0, 1.0)])
def test_tokens_per_pass_and_hits_by_depth(
    tiny_target: Target, num_right: int, expected: float
) -> None:
    shard = Shard(counting_answers(5, 40), None)
    rehearsal = Rehearsal(shard, draft_index(VOCAB, 128), depths=3)
    hits = rehearsal.hits(_Counting(tiny_target, num_right))
    assert hits.tokens_per_pass == pytest.approx(expected)
    assert hits.best_ratios == tuple(float(depth < num_right) for depth in range(3))
    reached = min(num_right + 1, 3)
    assert hits.among_four_ratios == tuple(float(depth < reached) for depth in range(3))


def test_sampled_answers_do_not_count() -> None:
    greedy = counting_answers(5, 9)
    sampled = [replace(answer, top_ids=answer.top_ids.flip(1)) for answer in greedy]
    assert can_rehearse(Shard([*sampled, greedy[0]], None))
    assert not can_rehearse(Shard(sampled, None))
    rehearsal = Rehearsal(Shard([*sampled, *greedy], None), draft_index(VOCAB, 128), depths=2)
    assert sum(len(batch.tokens) for batch in rehearsal.batches) == len(greedy)
