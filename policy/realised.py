"""What a recommendation brought: predicted goodput beside what windows since then yielded.

Only windows count that ran wholly under one plan, and of them only steps without prefill, which are
what the prediction speaks of. At each load level windows are told apart by what the whole plan said
there, since batch mates share steps. Before and after follow each other in time, so what differs
between them may be the traffic: this is bookkeeping, no experiment.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collectors.records import LoadLevel, Plan, Setting
from policy.decode_sum import DecodeSum
from policy.statistics import ratio_interval
from policy.types import Interval, LoadChange, Recommendation, Window

MIN_WINDOWS = 10
MIN_STEPS = 100
"""Windows and steps from which a figure is given."""

MOST_BLOCKS = 20
"""Successive windows see the same requests, so what scatters is blocks of them, two at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A window and the plan in force in all of it."""

    window: Window
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What one load level yielded under one plan.

    Attributes:
        tokens_per_s: by busy second of steps without prefill, with its 90 % interval; None where
            too little ran.
        windows: windows behind it.
        steps: steps behind it.
        start_s: start of the first window, Unix seconds.
        end_s: end of the last one.
        row_shares: by route, its share of the rows of all steps at this level.
    """

    tokens_per_s: Interval | None
    windows: int
    steps: int
    start_s: float
    end_s: float
    row_shares: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealisedLevel:
    """One load level: of the engine where routes share steps, of the route where they do not.

    Attributes:
        load: the load level.
        former: Setting of the route before.
        setting: Setting of the route since.
        predicted: tokens per second, as the recommendation said; equal ends where it kept no
            interval; None where it predicted nothing here.
        before: what the plan before it yielded; None where it never ran here.
        realised: what the plan with it yielded; None likewise.
        over_predicted: realised over predicted, less 1; None where one of them is lacking.
        over_before: realised over before, less 1; None likewise.
        others: routes whose Setting here differs between both plans too.
    """

    load: LoadLevel
    former: Setting
    setting: Setting
    predicted: Interval | None
    before: Counted | None
    realised: Counted | None
    over_predicted: float | None
    over_before: float | None
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Realised:
    """What a recommendation brought.

    Attributes:
        since_s: when it came into force first, Unix seconds.
        windows: windows looked at that ran wholly under a plan with it, or under one before it.
        levels: lowest load first.
        min_windows: windows from which a figure is given.
        min_steps: steps likewise.
    """

    since_s: float
    windows: int
    levels: tuple[RealisedLevel, ...]
    min_windows: int = MIN_WINDOWS
    min_steps: int = MIN_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """All windows of one load level under one plan, in the order of time."""

    plan: Plan
    counted: Counted


def realised(said: Recommendation, ran: Sequence[Ran], since_s: float) -> Realised:
    """Hold what was predicted against what ran.

    Args:
        said: the recommendation.
        ran: windows wholly under one plan, oldest first.
        since_s: when it came into force first, Unix seconds.
    """
    since = [one for one in ran if one.window.start_s >= since_s and _is_new(said, one.plan)]
    before = [one for one in ran if one.window.end_s <= since_s and _is_old(said, one.plan)]
    predicted = {change.load: _predicted(said, change) for change in said.changes}
    loads = {*predicted, *_loads_of(said.route, [*before, *since])}
    return Realised(
        since_s=since_s,
        windows=len(before) + len(since),
        levels=tuple(
            _level(said, load, predicted.get(load), before, since) for load in sorted(loads)
        ),
    )


def _is_new(said: Recommendation, plan: Plan) -> bool:
    return all(plan.setting_for(said.route, one.load) == one.proposed for one in said.changes)


def _is_old(said: Recommendation, plan: Plan) -> bool:
    return all(plan.setting_for(said.route, one.load) == one.current for one in said.changes)


def _predicted(said: Recommendation, change: LoadChange) -> Interval | None:
    mean = said.predicted_goodput.get(change.load.label)
    if change.goodput is not None or mean is None:
        return change.goodput
    return Interval.certain(mean)


def _loads_of(route: str, ran: Iterable[Ran]) -> Iterator[LoadLevel]:
    """Give the load levels at which a route had rows in steps that count."""
    for window in (one.window for one in ran):
        for mix in window.mixes:
            if mix.rows_by_route.get(route) and _sum_of(route, mix.load, window) is not None:
                yield mix.load


def _level(
    said: Recommendation,
    load: LoadLevel,
    predicted: Interval | None,
    before: Sequence[Ran],
    since: Sequence[Ran],
) -> RealisedLevel:
    old, new = _newest(said.route, load, before), _newest(said.route, load, since)
    change = next((one for one in said.changes if one.load == load), None)
    plans = [stretch.plan for stretch in (old, new) if stretch is not None]
    former = change.current if change else plans[0].setting_for(said.route, load)
    return RealisedLevel(
        load=load,
        former=former,
        setting=change.proposed if change else plans[-1].setting_for(said.route, load),
        predicted=predicted,
        before=old.counted if old else None,
        realised=new.counted if new else None,
        over_predicted=_over(new, predicted),
        over_before=_over(new, old.counted.tokens_per_s if old else None),
        others=_others(said.route, load, old, new) if old and new else (),
    )


def _newest(route: str, load: LoadLevel, ran: Iterable[Ran]) -> _Stretch | None:
    """Return the plan that ran last at a load level, one with enough windows if there is any."""
    by_plan: dict[Hashable, list[Ran]] = {}
    for one in ran:
        if _sum_of(route, load, one.window) is not None:
            by_plan.setdefault(_said_at(route, load, one.plan), []).append(one)
    found = [
        _Stretch(plan=parts[-1].plan, counted=_counted(route, load, [p.window for p in parts]))
        for parts in by_plan.values()
    ]
    return max(
        found,
        key=lambda one: (one.counted.tokens_per_s is not None, one.counted.end_s),
        default=None,
    )


def _said_at(route: str, load: LoadLevel, plan: Plan) -> Hashable:
    """Return what of a plan acts on the steps of a load level; the route's part in lone ones."""
    if load.is_lone:
        return plan.setting_for(route, load)
    entries = {
        (entry.route, entry.setting)
        for entry in plan.entries
        if entry.load == load and entry.setting != plan.default
    }
    return plan.default, frozenset(entries)


def _sum_of(route: str, load: LoadLevel, window: Window) -> DecodeSum | None:
    """Return what counts of a window: all steps of a level, or the route's own in lone ones."""
    wanted = (load, route if load.is_lone else None)
    for one in window.decode_sums:
        if (one.load, one.route) == wanted and one.busy_s > 0:
            return one
    return None


def _counted(route: str, load: LoadLevel, windows: Sequence[Window]) -> Counted:
    sums = [one for window in windows if (one := _sum_of(route, load, window)) is not None]
    steps = sum(one.steps for one in sums)
    is_enough = len(sums) >= MIN_WINDOWS and steps >= MIN_STEPS
    return Counted(
        tokens_per_s=_rate(sums) if is_enough else None,
        windows=len(sums),
        steps=steps,
        start_s=windows[0].start_s,
        end_s=windows[-1].end_s,
        row_shares=_row_shares(load, windows),
    )


def _rate(sums: Sequence[DecodeSum]) -> Interval:
    """Return tokens over seconds, its interval from how far blocks of windows scatter."""
    blocks = np.array_split(np.arange(len(sums)), min(MOST_BLOCKS, len(sums) // 2))
    tokens = np.array([float(one.tokens) for one in sums])
    busy_s = np.array([one.busy_s for one in sums])
    found = ratio_interval(
        np.array([tokens[block].sum() for block in blocks]),
        np.array([busy_s[block].sum() for block in blocks]),
    )
    return Interval(low=max(0.0, found.low), mean=found.mean, high=found.high)


def _row_shares(load: LoadLevel, windows: Iterable[Window]) -> dict[str, float]:
    rows: dict[str, float] = {}
    for mix in (mix for window in windows for mix in window.mixes if mix.load == load):
        for route, mean in mix.rows_by_route.items():
            rows[route] = rows.get(route, 0.0) + mix.steps * mean
    total = sum(rows.values())
    return {route: held / total for route, held in sorted(rows.items())} if total else {}


def _over(new: _Stretch | None, base: Interval | None) -> float | None:
    found = new.counted.tokens_per_s if new else None
    return None if found is None or base is None or base.mean <= 0 else found.mean / base.mean - 1


def _others(route: str, load: LoadLevel, old: _Stretch, new: _Stretch) -> tuple[str, ...]:
    """Return the other routes of shared steps whose Setting changed as well."""
    if load.is_lone:
        return ()
    seen = {*old.counted.row_shares, *new.counted.row_shares} - {route}
    return tuple(
        name
        for name in sorted(seen)
        if old.plan.setting_for(name, load) != new.plan.setting_for(name, load)
    )
