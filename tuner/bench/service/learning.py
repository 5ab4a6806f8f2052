"""How the service arrives at its plan: a day of the demo, then gate and approvals by rule."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collectors.errors import CollectorError
from collectors.records import Plan, Setting
from policy.types import Advice, Recommendation
from tuner.demo.acts import Acts, limited
from tuner.demo.day import keep_timetable, timetable
from tuner.demo.phases import Phase
from tuner.demo.player import Player
from tuner.errors import Interrupted, TunerError
from tuner.store import recommendations
from tuner.store.recommendations import State, StoredRecommendation
from tuner.workflows import review
from tuner.workflows.evaluate import evaluate, missing_reason, proposed_loads, proposed_settings
from tuner.workflows.ingest import ingest
from tuner.workflows.recommend import recommend
from tuner.workflows.site import Site

_APPROVER = "bench service (rule: approve what passed the gate)"
_PASSES = 2
"""Recommending, gate and approvals are repeated so often, as one approval may lead to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Where the service arrived.

    Attributes:
        plan: in force from now on.
        said: what was recommended last, by route.
        approved: numbers of the recommendations that came into force.
        refused: reasons of those that did not.
    """

    plan: Plan
    said: tuple[Recommendation, ...]
    approved: tuple[int, ...]
    refused: tuple[str, ...]


async def play_day(acts: Acts, player: Player, phases: Sequence[Phase]) -> None:
    """Play traffic while the service explores as in the demo; nothing is under way afterwards."""
    timed = await asyncio.to_thread(timetable, acts, phases, explores=True)
    beside = asyncio.create_task(keep_timetable(timed, acts.say))
    try:
        for phase in phases:
            acts.say(f"Learning, {phase.name}: {phase.duration_s:.0f} s")
            await player.play(phase)
        await beside
    finally:
        beside.cancel()
        await player.drain(0)
        await asyncio.to_thread(acts.end_exploration)


def arrive(site: Site, gate_s: float, say: Callable[[str], None]) -> Learned:
    """Ask for recommendations, evaluate what they propose, and approve what passes.

    Args:
        site: the engine and its store.
        gate_s: seconds for evaluations; afterwards only what passed by then is approved.
        say: prints one line.
    """
    until_s = time.monotonic() + gate_s
    approved: list[int] = []
    refused: list[str] = []
    said: tuple[Recommendation, ...] = ()
    for _ in range(_PASSES):
        ingest(site)
        said = recommend(site).said
        waiting = _waiting(site)
        _evaluate(site, waiting, until_s, say)
        before = len(approved)
        for stored in waiting:
            _approve(site, stored, approved, refused)
        if len(approved) == before:
            break
    say(f"Approved: {len(approved)} recommendations; not approved: {len(refused)}")
    for reason in refused:
        say(f"Not approved: {reason}")
    return Learned(
        plan=site.actuator.read_back(),
        said=said,
        approved=tuple(approved),
        refused=tuple(refused),
    )


def _waiting(site: Site) -> tuple[StoredRecommendation, ...]:
    with site.store.reading() as session:
        found = recommendations.listed(session, engine=site.engine, states=(State.PENDING,))
    return tuple(stored for stored in found if stored.said.advice is Advice.CHANGE)


def _evaluate(
    site: Site,
    waiting: Sequence[StoredRecommendation],
    until_s: float,
    say: Callable[[str], None],
) -> None:
    """Evaluate the Settings proposed on their routes, largest gain first, while there is time."""
    for stored in sorted(waiting, key=lambda one: -_largest_total(one)):
        for setting in proposed_settings(stored):
            left_s, name = until_s - time.monotonic(), f"{setting.label} on {stored.route}"
            if left_s <= 0:
                say(f"Gate: no time left for {name}")
                continue
            loads = proposed_loads(stored, setting)
            if missing_reason(site, setting, stored.route, loads) is not None:
                say(f"Gate: {name} {_verdict(site, setting, stored.route, left_s)}")


def _largest_total(stored: StoredRecommendation) -> float:
    return max((change.engine_total.mean for change in stored.said.changes), default=1.0)


def _verdict(site: Site, setting: Setting, route: str, seconds: float) -> str:
    try:
        found = evaluate(limited(site, seconds), setting, route)
    except Interrupted:
        return f"was not evaluated within {seconds:.0f} s"
    except (TunerError, CollectorError) as error:
        return f"was not evaluated: {error}"
    return f"{'passed' if found.is_passing else 'did not pass'}: {'; '.join(found.reasons)}"


def _approve(
    site: Site, stored: StoredRecommendation, approved: list[int], refused: list[str]
) -> None:
    try:
        review.approve(site, stored.id, who=_APPROVER)
    except TunerError as reason:
        refused.append(str(reason))
        return
    approved.append(stored.id)
