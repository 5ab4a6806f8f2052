"""Random numbers per row, and tokens drawn with them.

Every random choice of the engine is a pure function of uniforms that come from the row's own
generator, in a number that depends on the row alone. So a row's tokens never depend on its
batch mates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tuner.engine.verification.shapes import require_shape

NO_TOKEN = -1
"""Stands for "no draft here", and for "no token can be drawn" where a distribution is broken."""

Randomness = Sequence[torch.Generator] | Tensor
"""One generator a row, or uniforms already drawn, [B, K+1] float64."""


def new_generator(seed: int | None = None) -> torch.Generator:
    """Return the generator of one row.

    Args:
        seed: any Python integer, taken modulo 2**64; None for one from the operating system.
    """
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed % 2**64)
    return generator


def draw_uniforms(
    generators: Sequence[torch.Generator], num_drafted: Sequence[int], width: int
) -> Tensor:
    """Draw what one verification needs: a uniform per drafted token and one more.

    A row's uniforms stand in its first ``num_drafted + 1`` columns; the rest is 0 and never read.

    Args:
        generators: one per row, advanced by its own draft length + 1 draws.
        num_drafted: draft tokens of each row, 0..width-1.
        width: columns, K+1.

    Returns:
        [B, width] float64 in [0, 1), on the CPU.
    """
    uniforms = torch.zeros(len(generators), width, dtype=torch.float64)
    for row, (generator, drafted) in enumerate(zip(generators, num_drafted, strict=True)):
        uniforms[row, : drafted + 1] = torch.rand(
            drafted + 1, generator=generator, dtype=torch.float64
        )
    return uniforms


def as_uniforms(randomness: Randomness, num_drafted: Tensor, width: int) -> Tensor:
    """Return uniforms [B, width] on the device of `num_drafted`, drawn where needed.

    Raises:
        ShapeError: uniforms of another shape, or another number of generators.
    """
    if not isinstance(randomness, Tensor):
        require_shape("num_drafted", num_drafted, (len(randomness),))
        randomness = draw_uniforms(randomness, num_drafted.tolist(), width)
    require_shape("uniforms", randomness, (len(num_drafted), width))
    return randomness.to(num_drafted.device, torch.float64)


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Draw one token a row with probability proportional to its weight, by inverse CDF.

    A token of weight 0 is never drawn. Sums run in float64, one row at a time, so that rare tokens
    keep their share and a row's token does not depend on its batch mates.

    Args:
        weights: [B, V], not negative; they need not sum to 1.
        uniforms: [B] float64 in [0, 1).

    Returns:
        [B] int64; `NO_TOKEN` where the weights have no positive finite sum.
    """
    cumulative = weights.cumsum(1, dtype=torch.float64)
    total = cumulative[:, -1:].contiguous()
    wanted = uniforms.to(torch.float64).unsqueeze(1) * total
    token = torch.searchsorted(cumulative, wanted, right=True)
    last = torch.searchsorted(cumulative, total)
    is_drawable = (total > 0) & total.isfinite()
    return torch.minimum(token, last).where(is_drawable, NO_TOKEN).squeeze(1)
