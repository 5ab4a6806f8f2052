"""The timetable of one demo day: which act happens when, beside which traffic."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from collectors.errors import CollectorError
from collectors.records import LOAD_LEVELS, LoadLevel
from tuner.demo.acts import Acts
from tuner.demo.phases import Phase
from tuner.errors import TunerError

LEAST_STRETCH_S = 4.0
"""Shorter stretches of live exploration see too few whole answers: a short day tries fewer arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One act.

    Attributes:
        at_s: seconds after the start of the day; later where the act before it takes longer.
        act: blocking; run in a thread.
        until_s: too late from then on: the act is left out.
        rest_s: at least so long after the end of the act before it, if that one was done.
    """

    at_s: float
    act: Callable[[], None]
    until_s: float = math.inf
    rest_s: float = 0.0


def timetable(acts: Acts, phases: Sequence[Phase], *, explores: bool) -> tuple[Timed, ...]:
    """Return the acts of a day in order.

    Args:
        acts: what can be done.
        phases: quiet, surge, quiet again.
        explores: try arms on purpose; not needed once there is something to learn from.
    """
    quiet, surge, _ = phases
    start_of_surge_s = quiet.duration_s
    quiet_loads, surge_loads = LOAD_LEVELS[:3], LOAD_LEVELS[2:6]
    timed: list[Timed] = []
    if explores:
        shadow_s = 0.3 * quiet.duration_s
        timed.append(
            Timed(at_s=0.22 * quiet.duration_s, act=lambda: acts.explore_in_shadow(shadow_s))
        )
        timed += _tries(acts, 0.55 * quiet.duration_s, 0.34 * quiet.duration_s, quiet_loads)
        timed.append(Timed(at_s=0.9 * quiet.duration_s, act=acts.recommend))
        first_s = start_of_surge_s + 0.25 * surge.duration_s
        timed += _tries(acts, first_s, 0.45 * surge.duration_s, surge_loads)
        timed.append(Timed(at_s=start_of_surge_s + 0.72 * surge.duration_s, act=acts.recommend))
    return tuple(timed)


async def keep_timetable(timed: Sequence[Timed], say: Callable[[str], None]) -> None:
    """Do each act when it is due, one after the other; one that fails or is late is passed over."""
    start = ended = time.monotonic()
    for one in timed:
        due = max(start + one.at_s, ended + one.rest_s)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        if time.monotonic() >= start + one.until_s:
            say("Left out: a stretch of exploration, as what came before it took too long")
            ended = -math.inf
            continue
        try:
            await asyncio.to_thread(one.act)
        except (TunerError, CollectorError) as error:
            say(f"Left out: {error}")
        ended = time.monotonic()


def _tries(acts: Acts, first_s: float, span_s: float, loads: Sequence[LoadLevel]) -> list[Timed]:
    """Share a stretch of time among the live arms; which they are is known when it begins.

    However late it is, the last one is tried, so that a slow machine has seen one arm at least.
    """
    num_arms = min(len(acts.live_arms()), max(1, int(span_s / LEAST_STRETCH_S)))
    each_s = span_s / max(1, num_arms)
    timed = []
    for place in range(num_arms):
        end_s = first_s + (place + 1) * each_s
        until_s = end_s - 0.3 * each_s if place < num_arms - 1 else math.inf
        begin = partial(acts.explore, place, loads)
        timed.append(Timed(at_s=end_s - each_s, act=begin, until_s=until_s))
        timed.append(Timed(at_s=end_s, act=acts.end_exploration, rest_s=0.5 * each_s))
    return timed
