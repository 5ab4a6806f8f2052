"""The demo's prompts at a fixed number of requests under way, or as in the demo's surge."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tuner.bench.service.blocks import Level
from tuner.bench.service.options import ServiceBenchOptions
from tuner.demo.phases import Phase, monday_morning

_RATE_PER_S = 100.0
"""Arrivals beyond what the engine can answer: whenever a request ends, the next one is due."""


def levels_of(options: ServiceBenchOptions) -> tuple[Level, ...]:
    """Return the levels of traffic that are measured."""
    levels = tuple(Level(concurrency=one) for one in options.levels)
    if not options.has_surge:
        return levels
    surge = _surge(options.max_rows)
    return (*levels, Level(concurrency=surge.max_in_flight, is_surge=True))


def phase_of(level: Level, seconds: float, max_rows: int) -> Phase:
    """Return a stretch of traffic at a level.

    Args:
        level: of the traffic.
        seconds: its length.
        max_rows: the engine's batch, which the surge is made for.
    """
    if level.is_surge:
        return replace(_surge(max_rows), duration_s=seconds)
    return Phase(
        name=f"{level.concurrency} requests",
        duration_s=seconds,
        rate_per_s=_RATE_PER_S,
        max_in_flight=level.concurrency,
    )


def generator_of(seed: int, turn: int, level: Level, part: int = 0) -> Random:
    """Return the randomness of one block: every arm is asked the same prompts in the same order.

    Args:
        seed: of the run.
        turn: number of the round.
        level: of the traffic.
        part: of the block, where it has more than one.
    """
    return Random(f"{seed} {turn} {level.name} {part}")


def _surge(max_rows: int) -> Phase:
    _, surge, _ = monday_morning(1.0, max_rows)
    return surge
