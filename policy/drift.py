"""Whether what was learned still holds: changes of acceptance and traffic, faults, loops.

Windows go in one by one, in order; alarms come out. A change is told from luck by how much windows
of the same route scatter (``drift_history``). Counts that cannot be are a fault of counting and
teach nothing; acceptance that is too good to be true is no success.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from collectors.records import LoadLevel, Method, Setting
from collectors.records.parsing import digest_of
from policy.drift_alarms import (
    AFTER,
    BEFORE,
    Alarm,
    Boot,
    acceptance_alarm,
    fault_alarm,
    loop_alarm,
    mix_alarm,
)
from policy.drift_contrasts import acceptance_contrast, lengths, traffic_contrast
from policy.drift_history import Cut, History
from policy.statistics import Floats
from policy.tally import family_of, impossible_reason
from policy.types import Evidence, Observation, Window

POSITIONS = 9
"""Whether a draft was found at all, and the first eight draft positions."""

TRAFFIC = ""
"""Scope of the traffic's shares; every other scope is a route's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftOptions:
    """When to sound an alarm.

    Attributes:
        least_score: standard score from which a change is no luck, scatter allowed for.
        least_change: change of the tokens of a pass that matters, 0.03 being 3 %.
        min_before: windows with traffic needed before a change.
        min_after: windows with traffic needed after it.
        loop_rate: share of draft tokens kept that is too good to be true.
        loop_tries: draft tokens from which that can be told.
        loop_windows: windows in which it must hold.
    """

    least_score: float = 5.0
    least_change: float = 0.03
    min_before: int = 16
    min_after: int = 5
    loop_rate: float = 0.995
    loop_tries: int = 300
    loop_windows: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftState:
    """What was seen so far.

    Attributes:
        histories: by scope: a route's acceptance, or TRAFFIC for the shares of all.
    """

    histories: Mapping[str, History] = field(default_factory=dict)


def watch(
    state: DriftState,
    window: Window,
    boot: Boot | None = None,
    options: DriftOptions | None = None,
) -> tuple[DriftState, tuple[Alarm, ...]]:
    """Add one closed window and return what it gives cause for.

    Only live traffic counts. The same window must not be added twice.

    Args:
        state: what was seen before it.
        window: the window.
        boot: start of the engine that served it; None where unknown.
        options: when to sound an alarm.
    """
    chosen = options or DriftOptions()
    live = [seen for seen in window.observations if seen.evidence is Evidence.LIVE]
    reasons = [fault_reason(seen) for seen in live]
    faults = [
        fault_alarm(seen, reason) for seen, reason in zip(live, reasons, strict=True) if reason
    ]
    sound = [seen for seen, reason in zip(live, reasons, strict=True) if reason is None]
    histories, alarms = dict(state.histories), list(faults)
    for route in sorted({seen.route for seen in sound}):
        own = [seen for seen in sound if seen.route == route]
        before = histories.get(route, History(positions=POSITIONS))
        histories[route], found = _watch_route(before, route, own, window, boot, chosen)
        alarms += found
    before = histories.get(TRAFFIC, History(positions=1))
    histories[TRAFFIC], moved = _watch_traffic(before, sound, window, chosen)
    return replace(state, histories=histories), (*alarms, *moved)


def fault_reason(observation: Observation) -> str | None:
    """Say why counts cannot be right; None where they can.

    Counters that go backwards come out as negative counts, a rate outside 0 to 1 as more accepted
    than drafted. Engines that do not count by position are not at fault for it.
    """
    checked = observation if observation.attempts else replace(observation, drafted=0)
    reason = impossible_reason(checked)
    if reason is not None:
        return reason
    place = f"{observation.route} at {observation.setting.label}"
    if not 0 <= observation.accepted <= observation.drafted < math.inf:
        return f"{place}: {observation.accepted} accepted of {observation.drafted} drafted"
    if not 0 <= observation.tokens < math.inf:
        return f"{place}: {observation.tokens} tokens delivered"
    if observation.attempts and sum(observation.accepts) != observation.accepted:
        by_position = sum(observation.accepts)
        return f"{place}: {observation.accepted} accepted, {by_position} of them by position"
    return None


def cell_name(setting: Setting, is_greedy: bool | None, load: LoadLevel) -> str:
    """Return the name of what acceptance depends on beside the route and the draft length.

    Of an adaptive Setting on the load too: the engine keeps the positions that pay at it.
    """
    family = family_of(setting)
    name = f"{family.method}/{digest_of(family.to_dict())[:8]}/{_sampling(is_greedy)}"
    return f"{name}/{load.label}" if setting.is_adaptive else name


def _watch_route(
    history: History,
    route: str,
    seen: list[Observation],
    window: Window,
    boot: Boot | None,
    options: DriftOptions,
) -> tuple[History, list[Alarm]]:
    counts = _acceptance_counts(seen)
    if not counts:
        return history, []
    history = history.added(counts, window.start_s, window.end_s, acceptance_contrast)
    alarms = list(_loops(history, route, window, options))
    cut = _clear(
        history.clearest_cut(acceptance_contrast, options.min_before, options.min_after), options
    )
    found = None if cut is None else lengths(cut.before, cut.after)
    if cut is None or found is None or not _matters(found[2], found[3], options):
        return history, alarms
    method = Method(history.cells[found[0]].partition("/")[0])
    change = acceptance_alarm(route, method, cut, found[1:], window.end_s, boot)
    return history.after(cut), [*alarms, change]


def _watch_traffic(
    history: History, seen: list[Observation], window: Window, options: DriftOptions
) -> tuple[History, list[Alarm]]:
    counts: dict[str, Floats] = {}
    for one in seen:
        name = f"{one.route}/{_sampling(one.is_greedy)}"
        made = np.array([[one.passes + one.accepted, one.passes]], dtype=float)
        counts[name] = counts.get(name, 0.0) + made
    if not sum(float(made[0, 1]) for made in counts.values()):
        return history, []
    history = history.added(counts, window.start_s, window.end_s, traffic_contrast)
    cut = _clear(
        history.clearest_cut(traffic_contrast, options.min_before, options.min_after), options
    )
    if cut is None:
        return history, []
    alarm = mix_alarm(history.cells, cut, window.end_s)
    figures = alarm.figures
    if not _matters(figures[BEFORE], figures[AFTER], options):
        return history, []
    return history.after(cut), [alarm]


def _acceptance_counts(seen: list[Observation]) -> dict[str, Floats]:
    """Return tries and hits by position of the passes at a Setting that drafts; [P, 2] a cell."""
    counts: dict[str, Floats] = {}
    for one in seen:
        if one.setting.method is Method.OFF or not one.passes:
            continue
        name = cell_name(one.setting, one.is_greedy, one.load)
        table = counts.setdefault(name, np.zeros((POSITIONS, 2)))
        table[0] += (one.passes, one.verify_passes)
        depth = min(len(one.attempts), POSITIONS - 1)
        table[1 : 1 + depth, 0] += one.attempts[:depth]
        table[1 : 1 + depth, 1] += one.accepts[:depth]
    return counts


def _loops(history: History, route: str, window: Window, options: DriftOptions) -> Iterator[Alarm]:
    newest = history.newest_counts(options.loop_windows)
    if newest is None:
        return
    since_s, counts = newest
    for name, (tries, hits) in zip(history.cells, counts[:, 1:].sum(axis=1).tolist(), strict=True):
        if tries >= options.loop_tries and hits >= options.loop_rate * tries:
            method = Method(name.partition("/")[0])
            yield loop_alarm(route, method, since_s, window.end_s, tries=tries, hits=hits)


def _clear(cut: Cut | None, options: DriftOptions) -> Cut | None:
    return cut if cut is not None and abs(cut.score) >= options.least_score else None


def _matters(before: float, after: float, options: DriftOptions) -> bool:
    return abs(after / before - 1) >= options.least_change


def _sampling(is_greedy: bool | None) -> str:
    if is_greedy is None:
        return "mixed"
    return "greedy" if is_greedy else "sampled"
