"""What alarms mean for evidence: what came before a change counts less, a faulty route waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from policy.acceptance import WINDOW_CAP_PASSES
from policy.drift_alarms import Alarm, AlarmKind
from policy.types import DraftObservation, Observation, StepCost, Window

KEPT: Mapping[AlarmKind, float] = {
    AlarmKind.VERSION_CHANGE: 0.1,
    AlarmKind.DECAY: 0.25,
    AlarmKind.RISE: 0.25,
}
"""What counts from before a change are worth after it: little, but a better guess than none."""


def trusted(windows: Sequence[Window], alarms: Sequence[Alarm]) -> tuple[Window, ...]:
    """Return windows whose counts from before a change are cut down to what they are worth.

    A change of the engine also cuts its step times down; one of a drafter its acceptance and
    draft times only. Counts of a route stay possible counts.
    """
    changes = [alarm for alarm in alarms if alarm.kind in KEPT]
    return tuple(_faded(window, changes) for window in windows)


def investigated(alarms: Sequence[Alarm]) -> Mapping[str | None, str]:
    """Return routes about which nothing should be decided, and why; None stands for all routes."""
    return {
        alarm.route: f"being investigated for a {alarm.kind.replace('_', ' ')}: {alarm.saw}"
        for alarm in alarms
        if alarm.kind.stops_decisions
    }


def _faded(window: Window, changes: Sequence[Alarm]) -> Window:
    later = [alarm for alarm in changes if window.end_s <= alarm.since_s]
    if not later:
        return window
    all_times = _worth([a for a in later if _is_of_engine(a) and a.method is None])
    return replace(
        window,
        observations=tuple(_observation(seen, _of(seen, later)) for seen in window.observations),
        step_costs=tuple(_step_cost(cost, all_times) for cost in window.step_costs),
        draft_costs=tuple(
            _draft_cost(
                cost, _worth([a for a in later if _is_of_engine(a) and _meets(a, cost.method)])
            )
            for cost in window.draft_costs
        ),
    )


def _of(seen: Observation, alarms: Sequence[Alarm]) -> float:
    return _worth(
        [a for a in alarms if a.route in (None, seen.route) and _meets(a, seen.setting.method)]
    )


def _meets(alarm: Alarm, method: object) -> bool:
    return alarm.method is None or alarm.method is method


def _is_of_engine(alarm: Alarm) -> bool:
    return alarm.kind is AlarmKind.VERSION_CHANGE


def _worth(alarms: Sequence[Alarm]) -> float:
    worth = 1.0
    for alarm in alarms:
        worth *= KEPT[alarm.kind]
    return worth


def _observation(seen: Observation, worth: float) -> Observation:
    """Cut counts down; cut to whole numbers downwards, they keep their order."""
    if worth == 1:
        return seen
    ratio = worth * min(1.0, WINDOW_CAP_PASSES / max(1, seen.passes))
    accepts = tuple(int(ratio * count) for count in seen.accepts)
    return replace(
        seen,
        passes=int(ratio * seen.passes),
        verify_passes=int(ratio * seen.verify_passes),
        drafted=int(ratio * seen.drafted),
        accepted=sum(accepts),
        tokens=int(ratio * seen.tokens),
        attempts=tuple(int(ratio * count) for count in seen.attempts),
        accepts=accepts,
    )


def _step_cost(cost: StepCost, worth: float) -> StepCost:
    steps = max(1, int(worth * cost.steps))
    ratio = steps / max(1, cost.steps)
    return replace(
        cost,
        steps=steps,
        total_s=ratio * cost.total_s,
        total_square_s2=ratio * cost.total_square_s2,
    )


def _draft_cost(cost: DraftObservation, worth: float) -> DraftObservation:
    rounds = max(1, int(worth * cost.rounds))
    return replace(cost, rounds=rounds, total_s=rounds / max(1, cost.rounds) * cost.total_s)
