"""Sparse changes to the logits of a block: bias, bans, minimum length, penalties.

Rows without any are never touched, and a batch without any is never copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tuner.engine.verification.penalties import Ints
from tuner.engine.verification.rows import Block, RowSampler
from tuner.engine.verification.shapes import require_shape

_NEVER = float("-inf")


def edit_logits(
    logits: Tensor, block: Block, rows: Sequence[RowSampler], *, allowed: Tensor | None = None
) -> Tensor:
    """Apply everything that changes logits before the temperature does.

    Order: logit bias, allowed tokens, minimum length, repetition penalty, then frequency and
    presence. A position counts the drafted tokens that lead to it as delivered.

    Args:
        logits: [N, V] float32, raw; not changed.
        block: which positions are whose.
        rows: sampling state of each row.
        allowed: [N, V] bool, False where a token may not follow; None allows all.

    Returns:
        [N, V] float32: `logits` itself where there is nothing to change.

    Raises:
        ShapeError: logits and block disagree.
    """
    vocab_size = logits.shape[-1]
    require_shape("logits", logits, (block.num_positions, vocab_size))
    require_shape("draft_tokens", block.draft_tokens, (len(rows), block.draft_tokens.shape[1]))
    edited = _with_bias(logits, block, rows)
    if allowed is not None:
        require_shape("allowed", allowed, tuple(logits.shape))
        edited = edited.masked_fill(~allowed, _NEVER)
    edited = _with_minimum_length(edited, block, rows, is_shared=edited is logits)
    return _with_penalties(edited, block, rows, is_shared=edited is logits)


def _with_bias(logits: Tensor, block: Block, rows: Sequence[RowSampler]) -> Tensor:
    cells, values = [], []
    for index, row in enumerate(rows):
        if len(row.bias_ids):
            positions = block.positions(index)
            cells.append(_cells(positions, row.bias_ids, logits.shape[1]))
            values.append(np.tile(row.bias_values, len(positions)))
    if not cells:
        return logits
    flat = logits.flatten().clone()
    flat.index_add_(0, _joined(cells, logits), _joined(values, logits))
    return flat.view_as(logits)


def _with_minimum_length(
    logits: Tensor, block: Block, rows: Sequence[RowSampler], *, is_shared: bool
) -> Tensor:
    cells = [
        _cells(_too_early(block, index, row), np.array(row.end_ids), logits.shape[1])
        for index, row in enumerate(rows)
        if row.num_endless
    ]
    if not cells:
        return logits
    edited = logits.clone() if is_shared else logits
    edited.view(-1).index_fill_(0, _joined(cells, logits), _NEVER)
    return edited


def _with_penalties(
    logits: Tensor, block: Block, rows: Sequence[RowSampler], *, is_shared: bool
) -> Tensor:
    cells, divisors, deductions = [], [], []
    for index, row in enumerate(rows):
        if row.penalties is not None:
            penalty = row.penalties.block(block.drafts[index], block.parents_of(index))
            cells.append(_cells(block.positions(index), penalty.token_ids, logits.shape[1]))
            divisors.append(penalty.divisors.ravel())
            deductions.append(penalty.deductions.ravel())
    if not cells:
        return logits
    edited = logits.clone() if is_shared else logits
    flat, where = edited.view(-1), _joined(cells, logits)
    before, divisor = flat[where], _joined(divisors, logits)
    repeated = torch.where(before > 0, before / divisor, before * divisor)
    flat[where] = repeated - _joined(deductions, logits)
    return edited


def _too_early(block: Block, index: int, row: RowSampler) -> list[int]:
    """Return the positions of a row at which its answer may not end yet."""
    positions = zip(block.positions(index), block.depths(index), strict=True)
    return [position for position, depth in positions if depth < row.num_endless]


def _cells(positions: Sequence[int], token_ids: Ints, vocab_size: int) -> Ints:
    """Return the flat indexes of some tokens at some positions, position after position."""
    starts = np.asarray(positions, dtype=np.int64) * vocab_size
    return (starts[:, None] + token_ids).ravel()


def _joined(parts: Sequence[np.ndarray], like: Tensor) -> Tensor:
    return torch.from_numpy(np.concatenate(parts)).to(like.device)
