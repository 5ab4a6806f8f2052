"""Cross-entropy through a frozen output layer, a few positions at a time.

Called by distill.py. The scores over the draft vocabulary are the largest tensors of a step;
since the output rows do not learn, their gradient is taken at once and the scores are dropped.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 256


class _FrozenHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        rows: Tensor,
        ids: Tensor,
        wanted: Tensor,
    ) -> tuple[Tensor, Tensor]:
        losses, best, grads = [], [], torch.empty_like(hidden)
        for start in range(0, len(hidden), _CHUNK):
            part = slice(start, start + _CHUNK)
            scores = F.linear(hidden[part].to(rows.dtype), rows).float()
            picked = (wanted[part] * scores.gather(1, ids[part])).sum(-1)
            mass = wanted[part].sum(-1, keepdim=True)
            peak, likeliest = scores.max(-1, keepdim=True)
            shares = scores.sub_(peak).exp_()
            total = shares.sum(-1, keepdim=True)
            losses.append((mass * (peak + total.log()))[:, 0] - picked)
            best.append(likeliest[:, 0])
            slope = shares.mul_(mass / total)
            slope.scatter_add_(1, ids[part], -wanted[part])
            grads[part] = (slope.to(rows.dtype) @ rows).to(grads.dtype)
        ctx.save_for_backward(grads)
        indices = torch.cat(best)
        ctx.mark_non_differentiable(indices)
        return torch.cat(losses), indices

    @staticmethod
    def backward(
        ctx: Any,
        *outputs: Tensor,
    ) -> tuple[Tensor, None, None, None]:
        (grads,) = ctx.saved_tensors
        return grads * outputs[0][:, None], None, None, None


def frozen_head_loss(
    hidden: Tensor, rows: Tensor, ids: Tensor, wanted: Tensor
) -> tuple[Tensor, Tensor]:
    """Return each position's cross-entropy and its likeliest output row.

    Args:
        hidden: [N, H]; the only input that gets a gradient.
        rows: [D, H] output rows; scores are computed in their dtype.
        ids: [N, C] int64, output rows with a wanted probability; repeats add up.
        wanted: [N, C] float32, wanted probabilities, 0 where an id is only padding.

    Returns:
        Losses [N] float32, best rows [N] int64.
    """
    losses, best = _FrozenHead.apply(hidden, rows, ids, wanted)  # type: ignore[no-untyped-call]
    return losses, best
