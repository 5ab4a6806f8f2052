"""Typical acceptance: keep what the target finds plausible enough. Lossy.

The output is not distributed as the target alone: tokens that are unlikely where the target is sure
never appear, and drafted ones appear more often than the target would say them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.engine.verification.drawing import Randomness, as_uniforms, draw
from tuner.engine.verification.shapes import require_shape
from tuner.engine.verification.trees import Trees
from tuner.engine.verification.verify import Verified

EPSILON = 0.09
"""A token at least this likely is always typical."""

DELTA = 0.3
"""A token this many times as likely as exp(-entropy) is typical too: the root of `EPSILON`."""


def verify_typical(
    trees: Trees, target_probs: Tensor, starts: Tensor, randomness: Randomness
) -> Verified:
    """Keep the longest path of typical tokens, of equal ones the likeliest, and draw one more.

    A token is typical where the target gives it more than min(epsilon, delta * exp(-entropy)); the
    likeliest token always is. The paper takes the likeliest as the token after the path; here it is
    drawn among the typical ones, so that a temperature still means something.

    Args:
        trees: the drafts of R rows.
        target_probs: [N, V] floating, after every sampling transform.
        starts: [R] int64, which of them is each row's position 0.
        randomness: a generator per row, or uniforms [R, T+1].

    Raises:
        ShapeError: shapes disagree.
    Source: arXiv:2401.10774, section 2.3.1; epsilon and delta as in the authors' code.
    """
    require_shape("starts", starts, tuple(trees.num_drafted.shape))
    uniforms = as_uniforms(randomness, trees.num_drafted, trees.num_columns)
    thresholds = typical_thresholds(target_probs)
    before = starts.unsqueeze(1) + trees.follows
    probs = target_probs[before, trees.draft_tokens.clamp_min(0)].double()
    is_kept = (probs > thresholds[before]) & (trees.depths > 0)
    path = trees.longest_path(probs.where(is_kept, 0.0))
    weights = target_probs[starts + path.end].float()
    is_typical = weights.double() > thresholds[starts + path.end].unsqueeze(1)
    last_uniform = uniforms.gather(1, trees.num_drafted.unsqueeze(1)).squeeze(1)
    return Verified(
        accepted_len=path.length,
        next_token=draw(weights.where(is_typical, 0.0), last_uniform),
        path=path.nodes,
    )


def typical_thresholds(probs: Tensor) -> Tensor:
    """Return what a token must exceed at each position, [N] float64; NaN where the target is.

    Args:
        probs: [N, V], distributions.
    """
    entropy = torch.special.entr(probs.float()).cumsum(1, dtype=torch.float64)[:, -1]
    return (DELTA * torch.exp(-entropy)).clamp_max(EPSILON)
