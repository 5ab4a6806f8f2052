"""What replays and divergence reports show route by route: the evidence a gate stands on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from collectors.records import load_level_named
from collectors.records.parsing import as_object
from policy.gate import RouteSpeed, SpeedVerdict
from tuner.store.coding import interval_from_list, interval_to_list
from tuner.store.divergences import DivergenceSummary
from tuner.store.replays import ReplayState
from tuner.store.schema import DivergenceRouteRow, DivergenceRow, ReplayRouteRow, ReplayRow
from tuner.store.statements import insert_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedSpeed:
    """What a finished replay shows of one route at one load level.

    Attributes:
        replay: number of the replay.
        at: when it began.
        speed: the verdict.
    """

    replay: int
    at: datetime
    speed: RouteSpeed


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedOutputs:
    """What a divergence report says of one route.

    Attributes:
        divergence: number of the report.
        at: when it was made.
        summary: the verdict.
    """

    divergence: int
    at: datetime
    summary: DivergenceSummary


def add_speeds(session: Session, replay: int, speeds: Sequence[RouteSpeed]) -> None:
    """Store what a replay shows of each route."""
    rows = [
        {
            "replay": replay,
            "route": speed.route,
            "load": speed.load.label,
            "pairs": speed.pairs,
            "clusters": speed.clusters,
            "needed_pairs": speed.needed_pairs,
            "precision": speed.precision,
            "time_ratio": _interval(speed),
            "verdict": speed.verdict,
        }
        for speed in speeds
    ]
    insert_rows(session, ReplayRouteRow, rows)


def speeds_of(session: Session, replay: int) -> tuple[RouteSpeed, ...]:
    """Return what a replay shows, route by route."""
    rows = session.scalars(
        select(ReplayRouteRow).where(ReplayRouteRow.replay == replay).order_by(ReplayRouteRow.id)
    )
    return tuple(_speed(row) for row in rows)


def newest_speeds(
    session: Session, *, base: str, other: str, route: str, since: datetime
) -> tuple[ProvedSpeed, ...]:
    """Return what finished replays of two configurations show of a route, newest first."""
    rows = session.execute(
        select(ReplayRouteRow, ReplayRow.id, ReplayRow.started_at)
        .join(ReplayRow, ReplayRow.id == ReplayRouteRow.replay)
        .where(
            ReplayRow.base == base,
            ReplayRow.other == other,
            ReplayRow.state == ReplayState.DONE,
            ReplayRow.started_at >= since,
            ReplayRouteRow.route == route,
        )
        .order_by(ReplayRow.id.desc(), ReplayRouteRow.id)
    )
    return tuple(
        ProvedSpeed(replay=number, at=started_at, speed=_speed(row))
        for row, number, started_at in rows
    )


def add_outputs(
    session: Session, divergence: int, by_route: Mapping[str, DivergenceSummary]
) -> None:
    """Store what a report says of each route."""
    rows = [
        {
            "divergence": divergence,
            "route": route,
            "is_passing": summary.is_passing,
            "report": summary.to_dict(),
        }
        for route, summary in by_route.items()
    ]
    insert_rows(session, DivergenceRouteRow, rows)


def outputs_of(session: Session, divergence: int) -> dict[str, DivergenceSummary]:
    """Return what a report says, by route."""
    rows = session.scalars(
        select(DivergenceRouteRow)
        .where(DivergenceRouteRow.divergence == divergence)
        .order_by(DivergenceRouteRow.route)
    )
    return {row.route: _summary(row) for row in rows}


def newest_outputs(
    session: Session, *, tested: str, route: str, since: datetime
) -> ProvedOutputs | None:
    """Return what the newest report on a configuration says of a route; None without one."""
    found = session.execute(
        select(DivergenceRouteRow, DivergenceRow.id, DivergenceRow.created_at)
        .join(DivergenceRow, DivergenceRow.id == DivergenceRouteRow.divergence)
        .where(
            DivergenceRow.tested == tested,
            DivergenceRow.created_at >= since,
            DivergenceRouteRow.route == route,
        )
        .order_by(DivergenceRow.id.desc())
        .limit(1)
    ).first()
    if found is None:
        return None
    row, number, made_at = found
    return ProvedOutputs(divergence=number, at=made_at, summary=_summary(row))


def _interval(speed: RouteSpeed) -> list[float] | None:
    return None if speed.time_ratio is None else interval_to_list(speed.time_ratio)


def _speed(row: ReplayRouteRow) -> RouteSpeed:
    return RouteSpeed(
        route=row.route,
        load=load_level_named(row.load),
        pairs=row.pairs,
        clusters=row.clusters,
        precision=row.precision,
        needed_pairs=row.needed_pairs,
        time_ratio=None if row.time_ratio is None else interval_from_list(row.time_ratio),
        verdict=SpeedVerdict(row.verdict),
    )


def _summary(row: DivergenceRouteRow) -> DivergenceSummary:
    return DivergenceSummary.from_dict(as_object(row.report, f"report of route {row.route}"))
