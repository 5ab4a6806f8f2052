"""How routes stand: what is in force and brings what, and which route loses most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy.orm import Session

from collectors.records import LoadLevel, Route
from dashboards.views import InForce, Worst
from policy.knowledge import latencies
from policy.materiality import changed
from policy.options import RecommendOptions
from policy.outcome import Outcome
from policy.types import LoadChange, Window
from tuner.store import outcomes, recommendations
from tuner.store.recommendations import OPEN, State, StoredRecommendation


def in_force(session: Session, engine: str) -> tuple[InForce, ...]:
    """Return what promoted recommendations brought into force, by route and load level."""
    promoted = recommendations.listed(session, engine=engine, states=(State.PROMOTED,))
    measured = outcomes.of(session, [one.id for one in promoted])
    rows = [
        _row(stored, change, {one.load: one for one in measured.get(stored.id, ())})
        for stored in promoted
        for change in changed(stored.said)
    ]
    return tuple(sorted(rows, key=lambda row: (row.route, row.load)))


def worst(
    session: Session,
    engine: str,
    routes: Sequence[Route],
    windows: Sequence[Window],
    standing: Sequence[InForce],
) -> Worst | None:
    """Return the route with the largest loss; None where no route is known to lose.

    A loss is the share of requests beyond a limit, what a missed prediction fell short by, what
    the Setting in force loses against off, or what a waiting recommendation would win back.
    """
    waiting = recommendations.listed(session, engine=engine, states=OPEN)
    candidates = (
        *_broken_limits(routes, windows),
        *(found for row in standing if (found := _shortfall(row)) is not None),
        *(found for stored in waiting if (found := _unused(stored)) is not None),
    )
    return max(candidates, key=lambda one: one.loss, default=None)


def _row(
    stored: StoredRecommendation, change: LoadChange, measured: dict[LoadLevel, Outcome]
) -> InForce:
    outcome = measured.get(change.load)
    return InForce(
        recommendation_id=stored.id,
        route=stored.route,
        load=change.load,
        setting=change.proposed,
        predicted=change.over_off if outcome is None else outcome.predicted,
        outcome=outcome,
        is_missed=outcome is not None and outcome.is_missed,
    )


def _broken_limits(routes: Sequence[Route], windows: Sequence[Window]) -> Iterator[Worst]:
    limits = {route.name: route for route in routes}
    seen = latencies(one for window in windows for one in window.requests)
    for (name, load), latency in seen.items():
        share = latency.burn_ratio(limits[name]) if name in limits else None
        if share is not None and share > RecommendOptions().max_burn_ratio:
            line = f"{share:.0%} of its requests at load {load.label} were beyond its limits"
            yield Worst(route=name, loss=share, line=line, recommendation_id=None)


def _shortfall(row: InForce) -> Worst | None:
    """Return what a Setting in force loses: against its prediction where missed, or against off."""
    outcome = row.outcome
    if outcome is None:
        return None
    short = 1 - outcome.realised.mean / outcome.predicted.mean if outcome.is_missed else 0.0
    below = 1 - outcome.realised.mean if outcome.realised.high < 1 else 0.0
    loss = max(short, below)
    if loss <= 0:
        return None
    what = "missed its prediction" if short >= below else "is slower than before it"
    line = f"{row.setting.label} {what}: {outcome}"
    return Worst(route=row.route, loss=loss, line=line, recommendation_id=row.recommendation_id)


def _unused(stored: StoredRecommendation) -> Worst | None:
    best = max(changed(stored.said), key=lambda one: one.route_speed.mean, default=None)
    if best is None or best.route_speed.mean <= 1:
        return None
    speed = best.route_speed.minus_one
    line = (
        f"it runs {best.current.label} at load {best.load.label}, where {best.proposed.label} is "
        f"predicted to give its requests {speed.mean:+.0%} ({speed.low:+.0%} to {speed.high:+.0%})"
        f"; recommendation {stored.id} is {stored.state}"
    )
    loss = 1 - 1 / best.route_speed.mean
    return Worst(route=stored.route, loss=loss, line=line, recommendation_id=stored.id)
