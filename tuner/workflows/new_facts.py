"""Whether there is anything new to recommend from: facts since the last time, and live traffic."""

from __future__ import annotations

from datetime import timedelta

from collectors.records import Plan
from collectors.records.parsing import digest_of
from policy.types import Evidence, Window
from tuner.store import evidence, plans, recommendations
from tuner.workflows.drift import Ground
from tuner.workflows.site import Site

MIN_QUIET_WINDOWS = 2
"""Closed windows without live passes after which traffic has ended."""


def facts_digest(site: Site, found: Ground, current: Plan) -> str:
    """Return a digest that changes with whatever a recommendation is made from.

    Args:
        site: the engine, with its settings.
        found: windows and alarms.
        current: plan in force, what is tried taken out.
    """
    seen = [one for one in found.windows if one.observations]
    last = seen[-1] if seen else None
    with site.store.reading() as session:
        edits = plans.listed(session, site.engine, limit=1)
        pairs = evidence.replay_pairs(session, site.engine)
        answered = recommendations.last_decision(session, site.engine)
    return digest_of(
        [
            [window.start_s for window in (last,) if window is not None],
            _passes(last),
            sum(window.is_calibration for window in found.windows),
            current.digest,
            [edit.id for edit in edits],
            sorted(pairs.items()),
            answered,
            sorted(str(route) for route in found.waiting),
            [arm.to_dict() for arm in site.settings.arms],
            [site.settings.min_gain, str(site.settings.objective), site.settings.clean_pool],
        ]
    )


def stale_reason(site: Site, windows: tuple[Window, ...], facts: str) -> str | None:
    """Say why asking again would say nothing new; None where it may."""
    with site.store.reading() as session:
        former = evidence.facts_of(session, site.engine)
        listed = recommendations.listed(session, engine=site.engine, limit=1)
    if not listed:
        return None
    if former == facts:
        return "nothing new was seen since the last time; what was recommended stands"
    live_s = last_live_s(windows)
    if live_s is None:
        return None
    quiet_s = site.clock() - live_s
    ended = quiet_s > MIN_QUIET_WINDOWS * site.settings.window_s
    asked_since = listed[0].refreshed_at > site.now() - timedelta(seconds=quiet_s)
    if not ended or not asked_since:
        return None
    return (
        f"the last traffic of {site.engine} was {quiet_s / 60:.0f} min ago; what was recommended "
        "stands until there is more"
    )


def last_live_s(windows: tuple[Window, ...]) -> float | None:
    """Return the end of the last window with live passes, Unix seconds; None without one."""
    ends = [
        window.end_s
        for window in windows
        if any(one.evidence is Evidence.LIVE and one.passes for one in window.observations)
    ]
    return max(ends, default=None)


def _passes(window: Window | None) -> int:
    return 0 if window is None else sum(one.passes for one in window.observations)
