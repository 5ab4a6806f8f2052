"""Arithmetic of paired replays: a geometric mean of ratios with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import stdtrit

from policy.types import Interval
from tuner.store.replays import ArmRun, ReplayPair, ReplaySummary

CONFIDENCE = 0.90


def summary_of(pairs: Sequence[ReplayPair]) -> ReplaySummary:
    """Sum up a replay over the pairs that count."""
    valid = [pair for pair in pairs if pair.ratio is not None]
    return ReplaySummary(
        pairs=len(valid),
        void_pairs=len(pairs) - len(valid),
        speedup=speedup_of([pair.ratio for pair in valid if pair.ratio is not None]),
        base_tokens_per_pass=_tokens_per_pass(valid, lambda pair: pair.base),
        other_tokens_per_pass=_tokens_per_pass(valid, lambda pair: pair.other),
    )


def speedup_of(ratios: Sequence[float]) -> Interval | None:
    """Return the geometric mean of ratios with its 90 % interval (Student's t of their logs).

    None below two ratios, because one says nothing of how far they spread.
    """
    if len(ratios) < 2:
        return None
    logs = np.log(np.asarray(ratios, dtype=np.float64))
    mean = float(logs.mean())
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    reach = float(stdtrit(len(logs) - 1, 0.5 + CONFIDENCE / 2)) * error
    return Interval(low=math.exp(mean - reach), mean=math.exp(mean), high=math.exp(mean + reach))


def _tokens_per_pass(
    pairs: Sequence[ReplayPair], arm: Callable[[ReplayPair], ArmRun]
) -> float | None:
    """Return (P + A) / P over an arm; None where the engine did not tell."""
    runs = [arm(pair) for pair in pairs]
    counted = [
        (run.passes, run.accepted)
        for run in runs
        if run.passes is not None and run.accepted is not None
    ]
    passes = sum(seen for seen, _ in counted)
    accepted = sum(kept for _, kept in counted)
    return (passes + accepted) / passes if passes else None
