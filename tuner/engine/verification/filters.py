"""Top-k, top-p and min-p on many rows at once, without sorting whole vocabularies.

Each filter keeps every token whose probability reaches a threshold, ties included. So the result
is a function of the row alone: neither the order of a sort nor the batch mates matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engine.verification.largest import largest, sorted_values

_HEAD = 64
"""Most likely tokens looked at first; rows that keep more are sorted whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Filter parameters of R rows.

    Attributes:
        top_k: [R] int64; 0 keeps all.
        top_p: [R] float64; 1 keeps all.
        min_p: [R] float32; 0 keeps all.
    """

    top_k: Tensor
    top_p: Tensor
    min_p: Tensor

    def of(self, rows: Tensor) -> Filters:
        """Return the parameters of some rows."""
        return Filters(top_k=self.top_k[rows], top_p=self.top_p[rows], min_p=self.min_p[rows])

    @property
    def has_floor(self) -> Tensor:
        """Rows with top-k or min-p, [R, 1] bool."""
        return ((self.top_k > 0) | (self.min_p > 0)).unsqueeze(1)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where rows are cut.

    Attributes:
        threshold: [R, 1] float32, least probability that stays.
        mass: [R, 1] float64, what stays together.
        is_settled: [R] bool, False where tokens beyond those looked at may stay too.
    """

    threshold: Tensor
    mass: Tensor
    is_settled: Tensor

    def apply(self, probs: Tensor) -> Tensor:
        """Return probabilities [R, C] cut and renormalised."""
        return torch.where(probs >= self.threshold, probs, 0.0).div_(self.mass)


def filter_probs(probs: Tensor, filters: Filters) -> Tensor:
    """Set filtered tokens to 0 and renormalise the rest.

    min-p keeps tokens with at least that share of the most likely one's probability; top-k keeps
    the k most likely; top-p then keeps the fewest most likely tokens that hold at least that share
    of what the first two left. Tokens as likely as the least likely kept one stay too.

    Args:
        probs: [R, V] float32, rows sum to 1.
        filters: of the same rows.

    Returns:
        [R, V] float32.
    """
    head = min(_HEAD, probs.shape[1])
    values, tokens = largest(probs, head)
    cut = _cut(values, filters, is_whole=head == probs.shape[1])
    filtered = torch.zeros_like(probs).scatter_(1, tokens, cut.apply(values))
    rest = (~cut.is_settled).nonzero().squeeze(1)
    if len(rest):
        rows = probs[rest]
        filtered[rest] = _cut(sorted_values(rows), filters.of(rest), is_whole=True).apply(rows)
    return filtered


def _cut(values: Tensor, filters: Filters, *, is_whole: bool) -> _Cut:
    """Find the cut of each row from its most likely tokens.

    Args:
        values: [R, C] float32, probabilities of the C most likely tokens, most likely first.
        filters: of the same rows.
        is_whole: whether C is the whole vocabulary.
    """
    has_floor = filters.has_floor
    floor = _floor(values, filters)
    least = values[:, -1:]
    is_above = values >= floor
    mass = values.cumsum(1, dtype=torch.float64)
    total = torch.where(has_floor, mass.gather(1, _last(is_above)), 1.0)
    before = mass.roll(1, dims=1)
    before[:, 0] = 0
    top_p = filters.top_p.unsqueeze(1)
    is_needed = is_above & ((before < top_p * total) | (top_p >= 1))
    threshold = values.gather(1, _last(is_needed))
    is_inside = (least < floor) | (least == 0) | is_whole
    return _Cut(
        threshold=threshold,
        mass=mass.gather(1, _last(values >= threshold)),
        is_settled=(is_inside | ((least < threshold) & ~has_floor)).squeeze(1),
    )


def _floor(values: Tensor, filters: Filters) -> Tensor:
    """Return the least probability that top-k and min-p keep, [R, 1]."""
    width = values.shape[1]
    kth = values.gather(1, (filters.top_k - 1).clamp(0, width - 1).unsqueeze(1))
    has_kth = ((filters.top_k > 0) & (filters.top_k <= width)).unsqueeze(1)
    least = filters.min_p.unsqueeze(1) * values[:, :1]
    return torch.maximum(torch.where(has_kth, kth, 0.0), least)


def _last(is_kept: Tensor) -> Tensor:
    """Return the last kept column of each row, [R, 1]: the first where none is."""
    return is_kept.sum(1, keepdim=True).clamp_min_(1) - 1
