"""What an operator wants of a plan, as a bound on the step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policy.goodput import Batch, step_seconds
from policy.options import Objective


def with_objective(batch: Batch, objective: Objective) -> Batch:
    """Bound the step so that no route takes longer per token than the objective allows."""
    scenes, off = np.arange(batch.num_scenes), np.zeros(batch.rows.shape, dtype=np.intp)
    plain_s = step_seconds(batch, scenes, off)[:, None, None]
    rows = np.where(batch.rows > 0, batch.rows, np.inf)[:, :, None]
    tokens = np.maximum(batch.tokens / rows, 1.0)
    longest = (1 + objective.most_slowdown) * plain_s * tokens
    is_there = (batch.rows > 0)[:, :, None]
    return replace(
        batch, limit_s=np.where(is_there, np.minimum(batch.limit_s, longest), batch.limit_s)
    )
