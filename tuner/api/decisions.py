"""From stored recommendations to what the recommendation pages show."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from dashboards.console import Act
from dashboards.views import (
    Difference,
    DifferenceRow,
    RecommendationLine,
    RecommendationView,
    TransitionLine,
)
from policy.materiality import changed, headline, looks_the_same, snooze_line
from policy.outcome import Outcome, telling
from policy.types import Interval, LoadChange, Recommendation
from tuner.store import evidence, outcomes, recommendations
from tuner.store.recommendations import OPEN, State, StoredRecommendation, Transition
from tuner.workflows.outdated import newest_of_chain, seen_revision
from tuner.workflows.realised import realised
from tuner.workflows.refusals import refusals_of

ACTS_BY_STATE: dict[State, tuple[Act, ...]] = {
    State.PENDING: (Act.APPROVE, Act.HOLD, Act.REJECT),
    State.HELD: (Act.APPROVE, Act.REJECT),
    State.PROMOTED: (Act.ROLL_BACK,),
}


def lines_of(
    session: Session, listed: Sequence[StoredRecommendation]
) -> tuple[RecommendationLine, ...]:
    """Return what a list shows of recommendations, in their order."""
    measured = outcomes.of(session, [one.id for one in listed])
    return tuple(
        line_of(one, recommendations.transitions(session, one.id), measured.get(one.id, ()))
        for one in listed
    )


def line_of(
    stored: StoredRecommendation,
    history: Sequence[Transition],
    measured: Sequence[Outcome] = (),
) -> RecommendationLine:
    """Return what a list shows of a recommendation, given what was measured of it."""
    said = stored.said
    moved = changes_of(said)
    best = max(moved, key=lambda change: change.engine_total.mean, default=None)
    last = history[-1] if history else None
    outcome = telling(measured)
    return RecommendationLine(
        id=stored.id,
        route=said.route,
        state=stored.state,
        advice=said.advice,
        created_at=stored.created_at,
        changed_at=last.at if last else stored.created_at,
        changed_by=last.who if last else "",
        num_changes=len(moved),
        best_gain=best.engine_total.minus_one if best else None,
        best_load=best.load if best else None,
        headline=said.reasons[0] if said.reasons else "",
        outcome=outcome,
        is_missed=outcome is not None and outcome.is_missed,
    )


def view_of(
    session: Session, stored: StoredRecommendation, seen: int | None = None
) -> RecommendationView:
    """Return what the page of a recommendation shows.

    Args:
        session: of the store.
        stored: the recommendation.
        seen: revision that the operator was shown; None takes the newest.
    """
    history = recommendations.transitions(session, stored.id)
    revision = evidence.newest(session, stored.id)
    changes = changes_of(stored.said)
    shared = [one for one in changes if one.token_share < 1]
    slowest = max(shared, key=lambda one: one.step_ratio.mean, default=None)
    refusals = refusals_of(session, stored.engine, stored.route)
    return RecommendationView(
        line=lines_of(session, [stored])[0],
        said=stored.said,
        transitions=tuple(
            TransitionLine(
                at=step.at,
                before=None if step.before is None else step.before.value,
                after=step.after.value,
                who=step.who,
                why=step.why,
            )
            for step in history
        ),
        actions=tuple(act.value for act in acts_of(stored)),
        realised=realised(session, stored),
        revision=stored.revision,
        refreshed_at=stored.refreshed_at,
        best=max(changes, key=lambda one: headline(one).mean, default=None),
        worst=min(changes, key=lambda one: headline(one).low, default=None),
        slowest=slowest,
        neighbours=None if slowest is None else _neighbours(slowest),
        joint=_joint(changes),
        amount=None if revision is None else revision.amount,
        difference=_difference(session, stored, seen),
        together=_together(session, stored),
        snoozed=tuple(snooze_line(one) for one in refusals),
    )


def _neighbours(change: LoadChange) -> Interval:
    """Return how the speed of other routes' requests changes: they take the same steps."""
    step = change.step_ratio
    return Interval(low=1 / step.high - 1, mean=1 / step.mean - 1, high=1 / step.low - 1)


def _joint(changes: Sequence[LoadChange]) -> LoadChange | None:
    """Return the change that gains most by the changes of other routes; None without one."""
    joint = [(one, one.joint.engine_total.mean) for one in changes if one.joint is not None]
    return max(joint, key=lambda pair: pair[1])[0] if joint else None


def _difference(
    session: Session, stored: StoredRecommendation, seen: int | None
) -> Difference | None:
    """Return what changed since a page was made; None where it reads as it did."""
    newest = newest_of_chain(session, stored)
    shown = seen_revision(session, stored, seen)
    if newest.id == stored.id and shown is None:
        return None
    before = {one.load: one for one in (shown.changes if shown else stored.said.changes)}
    after = {one.load: one for one in newest.said.changes}
    rows = (
        DifferenceRow(load=load, shown=before.get(load), now=after.get(load))
        for load in sorted({*before, *after})
    )
    told = tuple(row for row in rows if not _reads_alike(row))
    return Difference(shown_id=stored.id, now_id=newest.id, rows=told)


def _reads_alike(row: DifferenceRow) -> bool:
    if row.shown is None or row.now is None:
        return False
    return looks_the_same((row.shown,), (row.now,))


def _together(session: Session, stored: StoredRecommendation) -> tuple[RecommendationLine, ...]:
    """Return the open recommendations that belong to one set with this one; none where one lacks.

    What one route gains by the changes of others is had only with all of them.
    """
    wanted = {
        route
        for change in changes_of(stored.said)
        if change.joint is not None
        for route in change.joint.routes
    } - {stored.route}
    if not wanted or stored.state not in OPEN:
        return ()
    listed = recommendations.listed(session, engine=stored.engine, states=OPEN)
    by_route = {one.route: one for one in listed if changes_of(one.said)}
    found = [by_route[route] for route in sorted(wanted) if route in by_route]
    if len(found) < len(wanted):
        return ()
    members = (stored, *found)
    return lines_of(session, members)


def acts_of(stored: StoredRecommendation) -> tuple[Act, ...]:
    """Return what may be done; where nothing would change there is nothing to decide."""
    return ACTS_BY_STATE.get(stored.state, ()) if changes_of(stored.said) else ()


def changes_of(said: Recommendation) -> list[LoadChange]:
    """Return the load levels at which the Setting would change."""
    return list(changed(said))
