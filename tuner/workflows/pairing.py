"""From stored pairs to figures: verdicts by route and load level, and the named sum of all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.special import stdtrit

from collectors.records import load_level_of
from policy.gate import MIN_CLUSTERS, PairSample, RouteSpeed, route_speeds
from policy.types import Interval
from tuner.store.replays import ArmRun, ReplayPair, ReplaySummary

CONFIDENCE = 0.90


def summary_of(pairs: Sequence[ReplayPair], *, planned: int | None = None) -> ReplaySummary:
    """Sum up a replay over the pairs that count, all routes together."""
    valid = [pair for pair in pairs if pair.ratio is not None]
    return ReplaySummary(
        pairs=len(valid),
        void_pairs=len(pairs) - len(valid),
        planned_pairs=planned,
        speedup=speedup_of([pair.ratio for pair in valid if pair.ratio is not None]),
        base_tokens_per_pass=_tokens_per_pass(valid, lambda pair: pair.base),
        other_tokens_per_pass=_tokens_per_pass(valid, lambda pair: pair.other),
    )


def speeds_of_pairs(pairs: Sequence[ReplayPair], *, precision: float) -> tuple[RouteSpeed, ...]:
    """Judge each route at each load level on its own pairs, those that count."""
    return route_speeds(_samples(pairs), precision=precision)


def speedup_of(ratios: Sequence[float]) -> Interval | None:
    """Return the geometric mean of ratios with its 90 % interval (Student's t of their logs).

    None below ``MIN_CLUSTERS`` ratios, because a few say little of how far they spread.
    """
    if len(ratios) < MIN_CLUSTERS:
        return None
    logs = np.log(np.asarray(ratios, dtype=np.float64))
    mean = float(logs.mean())
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    reach = float(stdtrit(len(logs) - 1, 0.5 + CONFIDENCE / 2)) * error
    return Interval(low=math.exp(mean - reach), mean=math.exp(mean), high=math.exp(mean + reach))


def _samples(pairs: Sequence[ReplayPair]) -> Iterator[PairSample]:
    """Give a sample a pair that counts; the pairs are in order, those of a batch one cluster."""
    batch, left = 0, 0
    for pair in pairs:
        if left == 0:
            batch, left = batch + 1, pair.rows
        left -= 1
        times = pair.token_times_s
        if times is None:
            continue
        talk = pair.conversation or pair.request_id
        yield PairSample(
            route=pair.route,
            load=load_level_of(pair.rows),
            log_ratio=math.log(times[1] / times[0]),
            cluster=talk if pair.rows == 1 else f"batch {batch}",
        )


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
