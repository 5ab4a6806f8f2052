"""Live acceptance: greedy drafts of a head in training, on held-out answers.

Called by distill.py at each checkpoint. Only answers that the target gave greedily count, since
there a draft token is accepted exactly if it is the answer's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engine.training.batching import Batch, Shard, make_batch
from tuner.engine.training.head import DraftHead
from tuner.engine.training.passes import fold_passes, sum_passes
from tuner.engine.training.scoring import HitScore
from tuner.engine.training.shards import Answer

_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """How a head would have drafted.

    Attributes:
        tokens_per_pass: answer tokens over target passes, at the rehearsal's draft length.
        best_ratios: by depth, how often the likeliest token is the answer's, given that the
            likeliest tokens of all depths before were.
        among_four_ratios: the same for the four likeliest tokens.
    """

    tokens_per_pass: float
    best_ratios: tuple[float, ...]
    among_four_ratios: tuple[float, ...]


class Rehearsal:
    """Some held-out answers, ready to be drafted.

    Attributes:
        depths: draft length.
        batches: the answers.
    """

    def __init__(self, shard: Shard, index: Tensor, *, depths: int, num_answers: int = 64) -> None:
        """Pick the greedy answers of a shard.

        Args:
            shard: held-out answers, some of them greedy.
            index: [V], from `draft_index`.
            depths: draft length.
            num_answers: answers to measure on, at most.
        """
        chosen = [i for i, answer in enumerate(shard.answers) if _is_greedy(answer)][:num_answers]
        self.depths = depths
        self.batches = [
            _batch(shard, chosen[start : start + _ROWS], index)
            for start in range(0, len(chosen), _ROWS)
        ]

    def hits(self, head: DraftHead) -> Hits:
        """Draft all answers greedily and count."""
        rows = head.output_rows.to(torch.bfloat16)
        parts, best, among_four = [], list[Tensor](), list[Tensor]()
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            for batch in self.batches:
                score = HitScore(batch, rows, self.depths)
                head(batch, score, self.depths)
                parts += [fold_passes(keep) for keep in _answer_places(score.best, batch)]
                best += _answer_places(score.best, batch)
                among_four += _answer_places(score.among_four, batch)
        folded = sum_passes(parts)
        return Hits(
            tokens_per_pass=folded.tokens / folded.passes,
            best_ratios=_conditional(best, best),
            among_four_ratios=_conditional(best, among_four),
        )


def can_rehearse(shard: Shard) -> bool:
    """Tell whether a shard holds a greedy answer."""
    return any(map(_is_greedy, shard.answers))


def _is_greedy(answer: Answer) -> bool:
    return bool((answer.tokens[answer.prompt_len :] == answer.top_ids[:, 0]).all())


def _batch(shard: Shard, numbers: list[int], index: Tensor) -> Batch:
    states = None if shard.states is None else [shard.states[number] for number in numbers]
    return make_batch([shard.answers[number] for number in numbers], index, states)


def _answer_places(hits: Tensor, batch: Batch) -> list[Tensor]:
    """Return [N, K] float of each answer, of hits [B, T, K]."""
    return [row[known].float() for row, known in zip(hits, batch.is_known, strict=True)]


def _conditional(best: list[Tensor], hits: list[Tensor]) -> tuple[float, ...]:
    """Return the share of hits by depth, among drafts that were right up to there."""
    ratios = []
    for depth in range(best[0].shape[1]):
        found = total = 0.0
        for right, hit in zip(best, hits, strict=True):
            num_roots = max(0, len(right) - 1 - depth)
            alive = torch.ones(num_roots)
            for before in range(depth):
                alive *= right[1 + before : 1 + before + num_roots, before]
            found += float((alive * hit[1 + depth : 1 + depth + num_roots, depth]).sum())
            total += float(alive.sum())
        ratios.append(found / total if total else 0.0)
    return tuple(ratios)
