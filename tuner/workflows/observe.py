"""Fold facts into windows: sums by route, Setting and load level, never averages of averages."""

from __future__ import annotations

import math

from sqlalchemy.orm import Session

from policy.types import Window
from tuner.settings import Settings
from tuner.store import counterfactuals, counts, facts, observations, pairings
from tuner.store.counts import Span
from tuner.store.step_times import step_times
from tuner.workflows.site import Site

SETTLING_S = 1.0
"""A record may reach the journal this long after the moment it carries."""

_ON_TIME = 1e-3
"""Share of a window by which its begin may miss the clock's grid, by rounding."""


def window_of(session: Session, engine: str, start_s: float, end_s: float) -> Window:
    """Fold the facts of [start_s, end_s), Unix seconds, into one window.

    Live traffic, replays and counterfactual scores come out as observations with their own
    evidence; step costs are taken from steps without prefill, mixes from steps without shadow rows.
    """
    span = Span(engine=engine, start_s=start_s, end_s=end_s)
    times = step_times(session, span)
    return Window(
        start_s=start_s,
        end_s=end_s,
        observations=(
            *counts.observations(session, span),
            *counterfactuals.observations(session, span),
        ),
        requests=counts.requests(session, span),
        step_costs=times.steps,
        draft_costs=times.drafts,
        mixes=counts.mixes(session, span),
        decode_sums=counts.decode_sums(session, span),
        pairings=pairings.step_pairings(session, span),
    )


def close_windows(site: Site) -> int:
    """Fold and store every window that is over and completely read; return how many.

    A window is completely read once a pull that began after its end has reached the journal's end.
    Stretches without a single step give no window.
    """
    closed = 0
    while (span := _next_span(site)) is not None:
        with site.store.reading() as session:
            window = window_of(session, site.engine, *span)
        with site.store.writing() as session:
            closed += observations.add(session, site.engine, window, site.now())
    return closed


def history(site: Site, end_s: float) -> tuple[Window, ...]:
    """Return the newest closed windows and what came after them until now, oldest first.

    The oldest window stays for a quarter of the history, then as many leave at once: until then
    what was learned goes on from where it was.
    """
    count = site.settings.history_windows
    with site.store.reading() as session:
        windows = observations.newest(session, site.engine, count, block=_block(count))
        start_s = windows[-1].end_s if windows else facts.first_at_s(session, site.engine)
        if start_s is None or start_s >= end_s:
            return windows
        newest = window_of(session, site.engine, start_s, end_s)
    return (*windows, newest) if newest.observations or newest.step_costs else windows


def history_length(settings: Settings) -> int:
    """Return how many windows a history has at most."""
    return settings.history_windows + _block(settings.history_windows) - 1


def _block(count: int) -> int:
    return max(1, count // 4)


def _next_span(site: Site) -> tuple[float, float] | None:
    """Return the next window to close; None while there is none."""
    length_s = site.settings.window_s
    with site.store.reading() as session:
        cursor = facts.latest_cursor(session, site.engine)
        last_end_s = observations.last_end_s(session, site.engine)
        first_s = facts.first_at_s(session, site.engine, last_end_s or 0.0)
    if cursor is None or cursor.caught_up_s is None or first_s is None:
        return None
    start_s = math.floor(first_s / length_s) * length_s
    start_s = max(start_s, last_end_s) if last_end_s is not None else start_s
    end_s = _end_of(start_s, length_s)
    return (start_s, end_s) if end_s + SETTLING_S <= cursor.caught_up_s else None


def _end_of(start_s: float, length_s: float) -> float:
    """Return the end of a window; one that follows windows of another length is cut to the grid."""
    number = start_s / length_s
    is_on_time = abs(number - round(number)) < _ON_TIME
    return start_s + length_s if is_on_time else math.ceil(number) * length_s
