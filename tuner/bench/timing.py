"""Timing on a shared machine: candidates take turns, each figure is a median, only ratios count."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Job = Callable[[], None]


def round_robin(jobs: Mapping[str, Job], rounds: int) -> dict[str, list[float]]:
    """Run every job once a round, after one round that is not counted.

    Returns:
        Seconds by job, one a round, in the same order of rounds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            elapsed = time.perf_counter() - started
            if number:
                seconds[name].append(elapsed)
    return seconds


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median over rounds of the ratio of two jobs that took turns."""
    ratios = [over / under for over, under in zip(numerators, denominators, strict=True)]
    return statistics.median(ratios)
