"""The closed formulas of speculative decoding with independent acceptance.

Used by the CLI and the proofs. Decisions use measured curves and costs instead, since real
acceptance is neither independent nor equal at every position.

Source: arXiv:2211.17192, equation 1 and theorem 3.8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from policy.errors import InvalidInput


def expected_tokens(alpha: float, k: int) -> float:
    """Return the mean tokens of one target pass: (1 - alpha^(k+1)) / (1 - alpha).

    Args:
        alpha: chance that a draft token is accepted, 0 to 1; 1 gives k + 1.
        k: draft length, 0 or more.

    Raises:
        InvalidInput: alpha or k is out of range.
    """
    _require_alpha(alpha)
    if k < 0:
        raise InvalidInput(f"k must be 0 or more, got {k}")
    return math.fsum(alpha**position for position in range(k + 1))


def speedup(alpha: float, k: int, c: float) -> float:
    """Return tokens per second over plain decoding: expected_tokens / (k c + 1).

    Args:
        alpha: chance that a draft token is accepted, 0 to 1.
        k: draft length, 0 or more.
        c: time of one draft step over the time of one target step, 0 or more.

    Raises:
        InvalidInput: an argument is out of range.
    """
    _require_cost(c)
    return expected_tokens(alpha, k) / (k * c + 1)


def best_k(alpha: float, c: float, max_k: int = 20) -> tuple[int, float]:
    """Return the draft length from 1 to max_k with the highest speedup, and that speedup.

    A speedup below 1 says that no length pays.

    Raises:
        InvalidInput: an argument is out of range.
    """
    if max_k < 1:
        raise InvalidInput(f"max_k must be 1 or more, got {max_k}")
    return max(
        ((k, speedup(alpha, k, c)) for k in range(1, max_k + 1)),
        key=lambda pair: (pair[1], -pair[0]),
    )


def break_even_cost(alpha: float, k: int) -> float:
    """Return the c at which k drafts neither win nor lose: (expected_tokens - 1) / k.

    Raises:
        InvalidInput: alpha is out of range or k is below 1.
    """
    if k < 1:
        raise InvalidInput(f"k must be 1 or more, got {k}")
    return (expected_tokens(alpha, k) - 1) / k


def tokens_from_survival(survival: Sequence[float], k: int) -> float:
    """Return the mean tokens of one pass, from the chance of each position to be kept.

    Args:
        survival: by draft position, chance that it and all before it are accepted.
        k: draft length, at most len(survival).

    Raises:
        InvalidInput: k is not covered, or a chance is no probability or rises with the position.
    """
    if not 0 <= k <= len(survival):
        raise InvalidInput(f"k must be 0 to {len(survival)}, the positions given, got {k}")
    chances = (1.0, *survival)
    for before, after in zip(chances, survival, strict=False):
        if not 0 <= after <= before:
            raise InvalidInput(f"survival must fall from 1 towards 0, got {tuple(survival)}")
    return math.fsum(chances[: k + 1])


def best_k_of_survival(survival: Sequence[float], cost_per_token: float) -> tuple[int, float]:
    """Return the best draft length, 0 included, and its speedup over plain decoding.

    Args:
        survival: by draft position, chance that it and all before it are accepted.
        cost_per_token: time to draft and verify one more token, in plain steps.

    Raises:
        InvalidInput: an argument is out of range.
    """
    _require_cost(cost_per_token)
    return max(
        (
            (k, tokens_from_survival(survival, k) / (1 + k * cost_per_token))
            for k in range(len(survival) + 1)
        ),
        key=lambda pair: (pair[1], -pair[0]),
    )


def _require_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise InvalidInput(f"alpha must be 0 to 1, got {alpha}")


def _require_cost(c: float) -> None:
    if not (c >= 0 and math.isfinite(c)):
        raise InvalidInput(f"the cost of a draft step must be 0 or more, got {c}")
