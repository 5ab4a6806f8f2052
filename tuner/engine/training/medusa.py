"""Medusa: independent heads on the target's last hidden state, one a depth.

Forward, with f_i the target's state of t_i after its final norm and root t_{i+1}: head d, counted
from 0, predicts t_{i+2+d} by

    b = f_i + SiLU(linear f_i)                            [H], `{d}.0.linear.weight` and `.bias`
    logits = R (proj b)                                   [D], R = output rows of the target

The public layout ends a head with output rows of its own, `{d}.1.weight` [V, H]. Ours are the
target's, turned by a square matrix, `{d}.1.proj.weight` [H, H]: R proj are the public rows.

Source: arXiv:2401.10774, section 2.1; key names of github.com/FasterDecoding/Medusa.
"""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from tuner.engine.training.batching import Batch
from tuner.engine.training.head import DraftHead, Score
from tuner.engine.training.target import Target


class _ResBlock(nn.Module):
    """A residual block that starts as the identity, as in the paper."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        done: Tensor = hidden + F.silu(self.linear(hidden))
        return done


class _Turned(nn.Module):
    """A square matrix before the target's output rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        turned: Tensor = self.proj(hidden)
        return turned


class MedusaHead(DraftHead):
    """Four Medusa heads in their trainable form."""

    method: ClassVar[str] = "medusa"
    title: ClassVar[str] = "Medusa heads"
    max_depth: ClassVar[int | None] = 4
    trained_depths: ClassVar[int] = 4

    def __init__(self, target: Target, draft_vocab: Tensor) -> None:
        """Build untrained heads; see `DraftHead`."""
        super().__init__(target, draft_vocab)
        width = target.shape.hidden
        self.heads = nn.ModuleList(
            nn.Sequential(_ResBlock(width), _Turned(width)) for _ in range(self.trained_depths)
        )

    def forward(self, batch: Batch, score: Score, depths: int) -> None:
        """Predict every known token at each depth from one state of the target."""
        states = batch.target_states()[..., -1, :]
        rows, columns = batch.known_places()
        roots = columns - 1
        for depth in range(depths):
            is_inside = (columns < batch.lengths[rows]) & (roots > 0)
            rows, columns, roots = rows[is_inside], columns[is_inside], roots[is_inside]
            hidden = self.heads[depth](states[rows, roots - 1].float())
            goes_on = score(depth, hidden, rows, columns)
            rows, columns, roots = rows[goes_on], columns[goes_on] + 1, roots[goes_on]

    def name_prefixes(self) -> tuple[str, str]:
        """Leave the list's own name out."""
        return "heads.", ""
