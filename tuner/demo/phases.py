"""When requests arrive: quiet, a Monday-morning surge, quiet again; Poisson within each phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tuner.demo.traffic import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of time with one rate of arrivals.

    Attributes:
        name: for people.
        duration_s: length.
        rate_per_s: mean arrivals a second.
        max_in_flight: requests under way at most; more arrivals wait their turn at the client.
    """

    name: str
    duration_s: float
    rate_per_s: float
    max_in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request due.

    Attributes:
        at_s: seconds after the start of its phase.
        prompt: what is asked.
    """

    at_s: float
    prompt: Prompt


def monday_morning(total_s: float, max_rows: int = 32) -> tuple[Phase, ...]:
    """Return the demo's day: quiet 40 %, surge 35 %, quiet 25 % of the time.

    Args:
        total_s: length of the day, in seconds.
        max_rows: the engine's batch; the surge fills three quarters, the rest is for shadow rows.
    """
    shares = (("quiet", 0.4), ("Monday-morning surge", 0.35), ("quiet again", 0.25))
    busy = max(2, max_rows * 3 // 4)
    return tuple(
        Phase(
            name=name,
            duration_s=share * total_s,
            rate_per_s=4.0 if "surge" in name else 0.5,
            max_in_flight=busy if "surge" in name else 2,
        )
        for name, share in shares
    )


def arrivals(phase: Phase, prompts: Sequence[Prompt], generator: Random) -> Iterator[Arrival]:
    """Yield the arrivals of a phase: exponential gaps, every route as often as the others."""
    by_route: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_route.setdefault(prompt.route, []).append(prompt)
    turns = _shuffled_turns(sorted(by_route), generator)
    at_s = generator.expovariate(phase.rate_per_s)
    while at_s < phase.duration_s:
        yield Arrival(at_s=at_s, prompt=generator.choice(by_route[next(turns)]))
        at_s += generator.expovariate(phase.rate_per_s)


def _shuffled_turns(routes: Sequence[str], generator: Random) -> Iterator[str]:
    while True:
        yield from generator.sample(routes, len(routes))
