"""What a head's predictions are worth: the training loss, and greedy hits on held-out answers.

Both are `head.Score`: called with the predictions of one depth, they say which drafts go on.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engine.training.batching import Batch
from tuner.engine.training.frozen_head import frozen_head_loss

TREE_WIDTH = 4


class TrainingScore:
    """Sums the cross-entropy against the target over all depths.

    Probabilities outside the draft vocabulary are left out and the rest renormalised; a position
    counts with the mass that remained. A draft goes on where its likeliest token is the answer's,
    so that depths weigh as much as they will be reached; and in a share of the other cases, since
    a sampled or a tree's draft also survives there.
    """

    def __init__(
        self, batch: Batch, output_rows: Tensor, rest_ratio: float, generator: torch.Generator
    ) -> None:
        """Start at zero.

        Args:
            batch: what is predicted.
            output_rows: [D, H], in the dtype to compute in.
            rest_ratio: share of the wrong drafts that go on all the same.
            generator: chooses them.
        """
        self._batch = batch
        self._rows = output_rows
        self._rest_ratio = rest_ratio
        self._generator = generator
        self._sum = torch.zeros(())
        self._mass = torch.zeros(())
        self.match_ratios: list[float] = []
        self.num_scored = 0

    def __call__(self, depth: int, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Add the loss of one depth; see `head.Score`."""
        ids = self._batch.top_ids[rows, columns]
        logprobs = self._batch.top_logprobs[rows, columns]
        is_drafted = ids >= 0
        wanted = logprobs.masked_fill(~is_drafted, float("-inf")).softmax(-1)
        wanted = wanted.masked_fill(~is_drafted, 0.0)
        losses, best = frozen_head_loss(hidden, self._rows, ids.clamp(min=0), wanted)
        weights = logprobs.exp().masked_fill(~is_drafted, 0.0).sum(-1).clamp(max=1.0)
        self._sum = self._sum + (losses * weights).sum()
        self._mass = self._mass + weights.sum()
        self.num_scored += len(rows)
        self.match_ratios.append(float((best == ids[:, 0]).float().mean()))
        is_right = best == self._batch.draft_tokens[rows, columns]
        return is_right | (torch.rand(len(rows), generator=self._generator) < self._rest_ratio)

    def loss(self) -> Tensor:
        """Return the mean loss in nats over everything scored."""
        return self._sum / self._mass.clamp(min=1.0)


class HitScore:
    """Notes where the likeliest and the four likeliest tokens hold the answer's token.

    Attributes:
        best: [B, T, K] bool, place T was hit by the likeliest token at depth K.
        among_four: [B, T, K] bool.
    """

    def __init__(self, batch: Batch, output_rows: Tensor, depths: int) -> None:
        """Start without a hit."""
        self._batch = batch
        self._rows = output_rows
        self.best = torch.zeros(*batch.tokens.shape, depths, dtype=torch.bool)
        self.among_four = self.best.clone()

    def __call__(self, depth: int, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Note the hits of one depth; every draft goes on."""
        wanted = self._batch.draft_tokens[rows, columns][:, None]
        scores = F.linear(hidden.to(self._rows.dtype), self._rows)
        hits = scores.topk(min(TREE_WIDTH, scores.shape[1]), dim=-1).indices == wanted
        self.best[rows, columns, depth] = hits[:, 0]
        self.among_four[rows, columns, depth] = hits.any(-1)
        return torch.ones(len(rows), dtype=torch.bool)
