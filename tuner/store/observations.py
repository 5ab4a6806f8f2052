"""Closed windows: observations as rows, the rest of a window as one value."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from collectors.records import LoadLevel, Setting, load_level_named
from collectors.records.parsing import as_object, items, member
from policy.types import Evidence, Observation, Window
from tuner.store import arms, coding, coding_sums
from tuner.store.schema import ObservationRow, WindowRow
from tuner.store.statements import insert_if_missing, insert_rows, json_part

NUMBERS_AT_ONCE = 10_000
"""Databases take a limited number of values in one statement."""


def add(session: Session, engine: str, window: Window, at: datetime) -> bool:
    """Store a closed window once; False where it was there already."""
    row = {
        "engine": engine,
        "start_s": window.start_s,
        "end_s": window.end_s,
        "created_at": at,
        "body": _rest_to_dict(window),
    }
    if not insert_if_missing(session, WindowRow, row):
        return False
    number = _window_id(session, engine, window)
    keys = arms.remember(session, {seen.setting for seen in window.observations})
    rows = [_row(number, seen, keys[seen.setting]) for seen in window.observations]
    insert_rows(session, ObservationRow, rows)
    return True


def last_end_s(session: Session, engine: str) -> float | None:
    """Return the end of the newest closed window, Unix seconds; None before the first."""
    return session.scalars(
        select(func.max(WindowRow.end_s)).where(WindowRow.engine == engine)
    ).one()


def newest(session: Session, engine: str, count: int, *, block: int = 1) -> tuple[Window, ...]:
    """Return the newest closed windows, oldest first.

    Args:
        session: store session.
        engine: engine name.
        count: how many at least, if there are so many.
        block: windows at a time by which the oldest one moves on, so that what was learned from the
            first of them holds for a while.
    """
    closed = session.scalars(
        select(func.count()).select_from(WindowRow).where(WindowRow.engine == engine)
    ).one()
    count += max(0, closed - count) % block
    rows = session.scalars(
        select(WindowRow)
        .where(WindowRow.engine == engine)
        .order_by(WindowRow.end_s.desc())
        .limit(count)
    ).all()
    return _windows(session, list(reversed(rows)))


def start_of_newest(session: Session, engine: str, count: int) -> float | None:
    """Return when the oldest of the newest closed windows began, Unix seconds; None without any."""
    starts = session.scalars(
        select(WindowRow.start_s)
        .where(WindowRow.engine == engine)
        .order_by(WindowRow.end_s.desc())
        .limit(count)
    ).all()
    return min(starts, default=None)


def between(session: Session, engine: str, start_s: float, end_s: float) -> tuple[Window, ...]:
    """Return the closed windows that end in (start_s, end_s], oldest first."""
    rows = session.scalars(
        select(WindowRow)
        .where(WindowRow.engine == engine, WindowRow.end_s > start_s, WindowRow.end_s <= end_s)
        .order_by(WindowRow.end_s)
    ).all()
    return _windows(session, list(rows))


def live_tokens(
    session: Session, engine: str, start_s: float
) -> tuple[dict[tuple[str, LoadLevel], int], float | None]:
    """Sum the live tokens of closed windows that end after a moment.

    Returns:
        Tokens by route and load level, and the start of the first such window, Unix seconds; None
        without one.
    """
    is_within = (WindowRow.engine == engine, WindowRow.end_s > start_s)
    first_s = session.scalars(select(func.min(WindowRow.start_s)).where(*is_within)).one()
    rows = session.execute(
        select(ObservationRow.route, ObservationRow.load, func.sum(ObservationRow.tokens))
        .join(WindowRow, WindowRow.id == ObservationRow.window)
        .where(*is_within, ObservationRow.evidence == Evidence.LIVE)
        .group_by(ObservationRow.route, ObservationRow.load)
    )
    found = {(route, load_level_named(load)): int(tokens) for route, load, tokens in rows}
    return found, first_s


def after(session: Session, engine: str, end_s: float, count: int) -> tuple[Window, ...]:
    """Return the first closed windows that end after a moment, oldest first."""
    rows = session.scalars(
        select(WindowRow)
        .where(WindowRow.engine == engine, WindowRow.end_s > end_s)
        .order_by(WindowRow.end_s)
        .limit(count)
    ).all()
    return _windows(session, list(rows))


def around(session: Session, engine: str, at_s: float, count: int) -> tuple[Window, ...]:
    """Return the closed windows nearest to a moment, oldest first, observations left out.

    Args:
        session: store session.
        engine: engine name.
        at_s: the moment, Unix seconds.
        count: how many at most that end by then, and as many that begin from then on.
    """
    mixes, sums = (json_part(session, WindowRow.body, key) for key in ("mixes", "decode_sums"))
    of_engine = select(WindowRow.start_s, WindowRow.end_s, mixes, sums).where(
        WindowRow.engine == engine
    )
    until = of_engine.where(WindowRow.end_s <= at_s).order_by(WindowRow.end_s.desc())
    since = of_engine.where(WindowRow.start_s >= at_s).order_by(WindowRow.end_s)
    rows = [
        *reversed(session.execute(until.limit(count)).all()),
        *session.execute(since.limit(count)).all(),
    ]
    return tuple(_decoded(*row) for row in rows)


def _decoded(start_s: float, end_s: float, mixes: object, decode_sums: object) -> Window:
    body = {"mixes": mixes or (), "decode_sums": decode_sums or ()}
    return Window(
        start_s=start_s,
        end_s=end_s,
        mixes=coding.listed(body, "mixes", coding.mix_from_dict),
        decode_sums=coding.listed(body, "decode_sums", coding_sums.decode_sum_from_dict),
    )


def _window_id(session: Session, engine: str, window: Window) -> int:
    return session.scalars(
        select(WindowRow.id).where(
            WindowRow.engine == engine,
            WindowRow.start_s == window.start_s,
            WindowRow.end_s == window.end_s,
        )
    ).one()


def _row(number: int, seen: Observation, setting: str) -> dict[str, object]:
    return {
        "window": number,
        "route": seen.route,
        "setting": setting,
        "load": seen.load.label,
        "evidence": seen.evidence,
        "passes": seen.passes,
        "verify_passes": seen.verify_passes,
        "drafted": seen.drafted,
        "accepted": seen.accepted,
        "tokens": seen.tokens,
        "attempts": list(seen.attempts),
        "accepts": list(seen.accepts),
        "is_greedy": seen.is_greedy,
        "reference_passes": seen.reference_passes,
    }


def _windows(session: Session, rows: list[WindowRow]) -> tuple[Window, ...]:
    by_window: dict[int, list[ObservationRow]] = {row.id: [] for row in rows}
    numbers = sorted(by_window)
    for first in range(0, len(numbers), NUMBERS_AT_ONCE):
        found = session.scalars(
            select(ObservationRow)
            .where(ObservationRow.window.in_(numbers[first : first + NUMBERS_AT_ONCE]))
            .order_by(ObservationRow.id)
        )
        for row in found:
            by_window[row.window].append(row)
    settings = arms.by_key(session)
    return tuple(_window(row, by_window[row.id], settings) for row in rows)


def _window(row: WindowRow, seen: list[ObservationRow], settings: dict[str, Setting]) -> Window:
    body = as_object(row.body, f"window {row.id}")
    return Window(
        start_s=row.start_s,
        end_s=row.end_s,
        observations=tuple(_observation(row, one, settings) for one in seen),
        requests=coding.listed(body, "requests", coding.requests_from_dict),
        step_costs=coding.listed(body, "step_costs", coding.step_cost_from_dict),
        draft_costs=coding.listed(body, "draft_costs", coding.draft_cost_from_dict),
        mixes=coding.listed(body, "mixes", coding.mix_from_dict),
        decode_sums=coding.listed(body, "decode_sums", coding_sums.decode_sum_from_dict),
        pairings=coding.listed(body, "pairings", coding_sums.pairing_from_dict),
    )


def _observation(
    window: WindowRow, row: ObservationRow, settings: dict[str, Setting]
) -> Observation:
    counts = {"attempts": row.attempts, "accepts": row.accepts}
    return Observation(
        route=row.route,
        setting=settings[row.setting],
        load=load_level_named(row.load),
        evidence=member(Evidence, row.evidence, "evidence"),
        start_s=window.start_s,
        end_s=window.end_s,
        passes=row.passes,
        verify_passes=row.verify_passes,
        drafted=row.drafted,
        accepted=row.accepted,
        tokens=row.tokens,
        attempts=coding.integers(items(counts, "attempts")),
        accepts=coding.integers(items(counts, "accepts")),
        is_greedy=row.is_greedy,
        reference_passes=row.reference_passes,
    )


def _rest_to_dict(window: Window) -> dict[str, object]:
    return {
        "requests": [coding.requests_to_dict(seen) for seen in window.requests],
        "step_costs": [coding.step_cost_to_dict(cost) for cost in window.step_costs],
        "draft_costs": [coding.draft_cost_to_dict(cost) for cost in window.draft_costs],
        "mixes": [coding.mix_to_dict(mix) for mix in window.mixes],
        "decode_sums": [coding_sums.decode_sum_to_dict(one) for one in window.decode_sums],
        "pairings": [coding_sums.pairing_to_dict(one) for one in window.pairings],
    }
