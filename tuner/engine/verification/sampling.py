"""From the model's logits to what each position may emit, exactly as one token at a time.

Order of the transforms at each position of a block:

1. logit bias (-100 or less bans the token), allowed tokens, minimum length, repetition penalty
   over prompt and output, frequency and presence penalties over the output: `logit_edits`;
2. a greedy row then takes the most likely token: `most_likely`;
3. any other divides by its temperature and takes the softmax, then min-p, top-k and top-p:
   `target_probs`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tuner.engine.request import SamplingParams
from tuner.engine.verification.drawing import NO_TOKEN
from tuner.engine.verification.filters import Filters, filter_probs
from tuner.engine.verification.largest import argmax
from tuner.engine.verification.shapes import require_shape

_COLDEST = 1e-6
"""Lower positive temperatures count as this one: below it float32 logits only overflow."""


def most_likely(logits: Tensor) -> Tensor:
    """Return the token a greedy row takes at each position.

    Args:
        logits: [N, V], after `edit_logits`.

    Returns:
        [N] int64; -1 where a logit is NaN or none is above -inf.
    """
    best, tokens = argmax(logits)
    return tokens.where(best > float("-inf"), NO_TOKEN)


def target_probs(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Return the distribution that each position of a sampled row is drawn from.

    Args:
        logits: [N, V] float32, after `edit_logits`; not changed.
        params: of each position's row, none greedy.

    Returns:
        [N, V] float32, rows sum to 1; NaN where the largest logit is not finite.

    Raises:
        ShapeError: logits and params disagree.
    """
    require_shape("logits", logits, (len(params), logits.shape[-1]))
    probs = _scaled(logits, [row.temperature for row in params]).softmax(dim=1)
    filtered = [position for position, row in enumerate(params) if _is_filtered(row)]
    if not filtered:
        return probs
    filters = _filters([params[position] for position in filtered], logits.device)
    if len(filtered) == len(params):
        return filter_probs(probs, filters)
    where = torch.tensor(filtered, device=logits.device)
    probs[where] = filter_probs(probs[where], filters)
    return probs


def _scaled(logits: Tensor, temperatures: Sequence[float]) -> Tensor:
    if all(temperature == 1 for temperature in temperatures):
        return logits
    divisors = torch.tensor(temperatures, dtype=logits.dtype, device=logits.device)
    return logits / divisors.clamp_min(_COLDEST).unsqueeze(1)


def _is_filtered(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1 or params.min_p > 0


def _filters(params: Sequence[SamplingParams], device: torch.device) -> Filters:
    return Filters(
        top_k=torch.tensor([row.top_k for row in params], device=device),
        top_p=torch.tensor([row.top_p for row in params], dtype=torch.float64, device=device),
        min_p=torch.tensor([row.min_p for row in params], dtype=torch.float32, device=device),
    )
