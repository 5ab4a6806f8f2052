"""Statistical checks of what the engine drew against what it says it draws from.

Verification is exact only if a drafter draws from the probabilities it hands over. A drafter that
does not is silently biased, and only its own draws can show it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tuner.engine.verification.shapes import require_shape

_LEAST_EXPECTED = 5.0
"""Outcomes expected fewer times are pooled, so that the chi-square approximation holds."""


def sibling_claims(probs: Tensor, columns: Sequence[int], parents: Sequence[int]) -> Tensor:
    """Return what each token of a tree was claimed to be drawn from, [T, V].

    That is its parent's distribution without the siblings that were drawn before it; all zero where
    these leave nothing, so that the token was a mere guess.

    Args:
        probs: [T, V], row i + 1 for the children of token i, as in `Draft.probs`.
        columns: T tokens, as columns of `probs`.
        parents: index of each token's parent, -1 for the last committed token.
    """
    claims = probs[torch.tensor(parents, dtype=torch.int64, device=probs.device) + 1].clone()
    for token, parent in enumerate(parents):
        for sibling in range(token):
            if parents[sibling] == parent:
                claims[token, columns[sibling]] = 0
    total = claims.sum(1, keepdim=True)
    return claims / total.where(total > 0, 1.0)


def claimed_probs_p_value(draft_tokens: Tensor, claimed_probs: Tensor) -> float:
    """Return how likely draws at least this far from the claimed probabilities are.

    Where the claims differ from draw to draw the value errs on the large side, so the stated
    false-alarm rate is an upper bound.

    Args:
        draft_tokens: [n] int64, drawn tokens; -1 entries (no draft) are left out.
        claimed_probs: [n, V], what each was claimed to be drawn from.

    Returns:
        p-value in 0..1; 1 where there is too little to tell anything.

    Raises:
        ShapeError: one claim a draw is needed.
    """
    require_shape("claimed_probs", claimed_probs, (len(draft_tokens), claimed_probs.shape[-1]))
    is_drawn = draft_tokens >= 0
    observed = torch.bincount(draft_tokens[is_drawn], minlength=claimed_probs.shape[1])
    return chi_square_p_value(observed, claimed_probs[is_drawn].double().sum(0))


def chi_square_p_value(observed: Tensor, expected: Tensor) -> float:
    """Return Pearson's chi-square p-value of counts against expected counts.

    Outcomes expected fewer than 5 times are pooled into one.

    Args:
        observed: [C] counts.
        expected: [C] expected counts with the same sum.

    Returns:
        p-value in 0..1; 0 where an outcome of expectation 0 was seen; 1 where fewer than two
        outcomes are left to compare.

    Raises:
        ShapeError: shapes disagree.
    """
    require_shape("observed", observed, tuple(expected.shape))
    observed, expected = observed.double(), expected.double()
    if bool((observed[expected == 0] > 0).any()):
        return 0.0
    is_rare = expected < _LEAST_EXPECTED
    seen = torch.cat([observed[~is_rare], observed[is_rare].sum(0, keepdim=True)])
    wanted = torch.cat([expected[~is_rare], expected[is_rare].sum(0, keepdim=True)])
    seen, wanted = seen[wanted > 0], wanted[wanted > 0]
    degrees = len(wanted) - 1
    if degrees < 1:
        return 1.0
    statistic = ((seen - wanted) ** 2 / wanted).sum()
    half = torch.tensor(degrees / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, statistic / 2))
