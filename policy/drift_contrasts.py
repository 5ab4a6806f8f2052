"""How newer counts differ from older ones: acceptance at equal traffic, traffic at equal rates."""

from __future__ import annotations

import numpy as np

from policy.statistics import Floats

_FEWEST_TRIES = 20


def acceptance_contrast(before: Floats, after: Floats) -> Floats:
    """Score how many more tries were hits, cell by cell and position by position; [N].

    Each cell and position is a stratum of its own, so that another mix of Settings, draft lengths
    or sampling does not look like a change.

    Args:
        before: [N, C, P, 2] tries and hits.
        after: the same.

    Source: Mantel and Haenszel, 1959.
    """
    tries, later = before[..., 0], after[..., 0]
    total, hits = tries + later, before[..., 1] + after[..., 1]
    pairs = np.maximum(total, 1.0)
    expected = later * hits / pairs
    variance = tries * later * hits * (total - hits) / (pairs**2 * np.maximum(total - 1, 1.0))
    excess = (after[..., 1] - expected).sum(axis=(1, 2))
    spread = np.sqrt(variance.sum(axis=(1, 2)))
    return np.asarray(np.where(spread > 0, excess / np.maximum(spread, 1e-12), 0.0))


def traffic_contrast(before: Floats, after: Floats) -> Floats:
    """Score how much fewer passes a token takes for other shares of traffic alone; [N].

    Each kind's passes per token are those of both sides together, so that only shares count.

    Args:
        before: [N, C, 1, 2] by kind of traffic: tokens and passes.
        after: the same.
    """
    cost = passes_per_token(before, after)
    old, new = token_shares(before), token_shares(after)
    both = token_shares(before + after)
    mean = (both * cost).sum(axis=1)
    variance = (both * cost**2).sum(axis=1) - mean**2
    tokens = [np.maximum(side[..., 0, 0].sum(axis=1), 1.0) for side in (before, after)]
    spread = np.sqrt(np.maximum(variance, 0.0) * (1 / tokens[0] + 1 / tokens[1]))
    saved = ((old - new) * cost).sum(axis=1)
    return np.asarray(np.where(spread > 0, saved / np.maximum(spread, 1e-12), 0.0))


def passes_per_token(before: Floats, after: Floats) -> Floats:
    """Return passes per token of each kind over both sides; [N, C], 0 without tokens."""
    both = (before + after)[..., 0, :]
    return np.asarray(both[..., 1] / np.maximum(both[..., 0], 1.0))


def token_shares(counts: Floats) -> Floats:
    """Return each kind's share of the tokens; [N, C]."""
    tokens = counts[..., 0, 0]
    return np.asarray(tokens / np.maximum(tokens.sum(axis=1, keepdims=True), 1.0))


def lengths(before: Floats, after: Floats) -> tuple[int, int, float, float] | None:
    """Return what a pass yielded before and after, in the cell seen most on both sides.

    Both are taken to the draft position that both sides reached, so that another draft length
    changes neither.

    Args:
        before: [C, P, 2] tries and hits; position 0 is whether a draft was found.
        after: the same.

    Returns:
        (cell, positions, tokens per pass before, after); None where no cell was seen on both.
    """
    seen = np.minimum(before[:, 0, 0], after[:, 0, 0])
    if not len(seen) or seen.max() < _FEWEST_TRIES:
        return None
    cell = int(np.argmax(seen))
    reached = np.minimum(before[cell, :, 0], after[cell, :, 0]) >= _FEWEST_TRIES
    depth = int(np.argmin(np.append(reached, False)))
    old, new = (1 + _survival(side[cell, :depth])[1:].sum() for side in (before, after))
    return cell, depth - 1, float(old), float(new)


def _survival(counts: Floats) -> Floats:
    return np.asarray(np.cumprod(counts[:, 1] / np.maximum(counts[:, 0], 1.0)))
