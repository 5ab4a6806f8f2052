"""How an answer would have been cut into target passes, given which drafts would be accepted.

Called by measure.py (expectations under each route's sampling) and by rehearsal.py (greedy hits).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedPasses:
    """The expected course of speculation over some answers; sums, never averages of averages.

    Attributes:
        passes: target passes that verified a draft.
        accepted_by_position: [K] passes in which that draft position was accepted.
        drafted_by_position: [K] passes in which that position lay before the answer's end.
        tokens: answer tokens after the first, which comes from the prompt's own pass.
    """

    passes: float
    accepted_by_position: tuple[float, ...]
    drafted_by_position: tuple[float, ...]
    tokens: int


def fold_passes(keep: Tensor) -> FoldedPasses:
    """Walk one answer pass by pass, in expectation.

    The first answer token comes from the prompt's own pass, without a draft. Each later pass starts
    at a token with some probability, accepts positions until one is refused, and adds one token of
    the target's own.

    Args:
        keep: [N, K] probability that an answer token would be accepted as the draft's position K,
            given that the positions before it were.
    """
    chances = keep.tolist()
    k = keep.shape[1]
    starts = [0.0] * (len(chances) + k + 1)
    starts[1] = 1.0
    accepted, drafted = [0.0] * k, [0.0] * k
    for begin in range(1, len(chances)):
        alive = starts[begin]
        for position in range(k):
            place = begin + position
            if place >= len(chances):
                break
            drafted[position] += starts[begin]
            starts[place + 1] += alive * (1 - chances[place][position])
            alive *= chances[place][position]
            accepted[position] += alive
        else:
            starts[begin + k + 1] += alive
    return FoldedPasses(
        passes=sum(starts[1 : len(chances)]),
        accepted_by_position=tuple(accepted),
        drafted_by_position=tuple(drafted),
        tokens=len(chances) - 1,
    )


def sum_passes(parts: list[FoldedPasses]) -> FoldedPasses:
    """Add up the courses of several answers of equal draft length."""
    return FoldedPasses(
        passes=sum(part.passes for part in parts),
        accepted_by_position=_columns([part.accepted_by_position for part in parts]),
        drafted_by_position=_columns([part.drafted_by_position for part in parts]),
        tokens=sum(part.tokens for part in parts),
    )


def _columns(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))
