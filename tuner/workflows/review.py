"""What an operator decides about a recommendation: approve, reject, hold, roll back.

The state is taken first, by a conditional update, so that of two operators only one acts. Then the
engine is changed. Where that fails, the state goes back to what it was and both steps stay on
record.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from collectors.records import Plan, PlanEntry
from policy.recommend import plan_with
from policy.types import Advice
from tuner.errors import (
    ActuatorError,
    BadRequest,
    NotFound,
    OutcomeUnknown,
    PlanRefused,
    StateChanged,
)
from tuner.store import audit, plans, recommendations
from tuner.store.plans import PlanChange
from tuner.store.recommendations import State, StoredRecommendation
from tuner.workflows.apply import Intent, attempt, begin, fail, restore, send, succeed
from tuner.workflows.baseline import without_exploration
from tuner.workflows.evaluate import require_evaluations
from tuner.workflows.outdated import require_current
from tuner.workflows.site import Site
from tuner.workflows.trial import end_trial_under


def approve(
    site: Site, number: int, *, who: str, why: str = "", revision: int | None = None
) -> StoredRecommendation:
    """Put a recommended change into force, and return the recommendation, promoted.

    Args:
        site: the engine.
        number: the recommendation.
        who: token name of an operator.
        why: one line; may be empty.
        revision: revision that the operator was shown; None takes the newest.

    Raises:
        NotFound: there is no such recommendation.
        BadRequest: it recommends no change, or the reason is too long.
        Outdated: it was superseded or updated since it was shown.
        StateChanged: its state does not allow it, somebody was first, or the route runs something
            else by now than the recommendation was made for.
        NotEvaluated: a Setting lacks the evaluation that ``require_evaluation`` asks for.
        OutcomeUnknown: the engine fell silent in the middle; the state stays approved until it
            answers again.
        ActuatorError: the engine did not take the plan; state and live plan are as before.
    """
    reason = audit.reason_line(why or "approved")
    stored = approvable(site, number, revision)
    end_trial_under(site, stored.said, who=who)
    before = own_plan(site, who)
    require_same_ground(stored, without_exploration(site, before))
    intent = Intent(
        plan=plan_with(before, stored.said),
        before=before,
        recommendation=number,
        who=who,
        why=reason,
    )
    change = _take(site, stored, intent)
    live = _send_or_put_back(site, stored, intent, change)
    with site.store.writing() as session:
        succeed(site, session, change, live, intent)
        return promote(site, session, number, who=who, why=f"plan {live.digest} is live")


def approvable(site: Site, number: int, revision: int | None = None) -> StoredRecommendation:
    """Return a recommendation that may be approved now.

    Raises:
        NotFound: there is no such recommendation.
        BadRequest: it recommends no change.
        Outdated: it was superseded or updated since it was shown.
        StateChanged: its state does not allow it.
        NotEvaluated: a Setting lacks the evaluation that ``require_evaluation`` asks for.
    """
    with site.store.reading() as session:
        stored = recommendations.one(session, number)
        require_current(session, stored, revision)
    if stored.said.advice is not Advice.CHANGE:
        raise BadRequest(
            f"recommendation {number} says {stored.said.advice} for route {stored.route}; there is "
            "nothing to approve"
        )
    require_evaluations(site, stored)
    recommendations.require_step(number, stored.state, State.APPROVED)
    return stored


def reject(site: Site, number: int, *, who: str, why: str) -> StoredRecommendation:
    """Close a recommendation without acting on it.

    Raises:
        NotFound: there is no such recommendation.
        BadRequest: the reason is empty or too long.
        StateChanged: its state does not allow it, or somebody was first.
    """
    return _move(site, number, State.REJECTED, who=who, why=why)


def hold(site: Site, number: int, *, who: str, why: str) -> StoredRecommendation:
    """Put a recommendation aside; it can still be approved.

    Raises:
        NotFound: there is no such recommendation.
        BadRequest: the reason is empty or too long.
        StateChanged: its state does not allow it, or somebody was first.
    """
    return _move(site, number, State.HELD, who=who, why=why)


def roll_back(site: Site, number: int, *, who: str, why: str) -> StoredRecommendation:
    """Give a promoted recommendation's route the Settings back that it had before.

    Changes made to other routes since then stay.

    Raises:
        NotFound: there is no such recommendation, or no change of it on record.
        BadRequest: the reason is empty or too long.
        StateChanged: it is not promoted, or somebody was first.
        ActuatorError: the engine did not take the plan; state and live plan are as before.
    """
    why = audit.reason_line(why)
    with site.store.reading() as session:
        stored = recommendations.one(session, number)
    if stored.state is not State.PROMOTED:
        raise StateChanged(
            f"recommendation {number} is {stored.state}; only a promoted one can be rolled back"
        )
    with site.store.reading() as session:
        change = _change_of(session, stored)
    end_trial_under(site, stored.said, who=who)
    live = own_plan(site, who)
    restored = plan_without(live, change)
    intent = Intent(plan=restored, before=live, recommendation=number, who=who, why=why)
    change_number, reached = attempt(site, intent)
    with site.store.writing() as session:
        succeed(site, session, change_number, reached, intent)
        return note_roll_back(site, session, number, who=who, why=why)


def promote(
    site: Site, session: Session, number: int, *, who: str, why: str
) -> StoredRecommendation:
    """Note that an approved recommendation is live; it replaces the route's promoted one."""
    route = recommendations.one(session, number).route
    promoted = recommendations.listed(
        session, engine=site.engine, route=route, states=(State.PROMOTED,)
    )
    replaced = f"replaced by recommendation {number}"
    for older in promoted:
        recommendations.supersede(session, older.id, number, who=who, at=site.now(), why=replaced)
    for state in (State.STAGED, State.PROMOTED):
        recommendations.move(session, number, state, who=who, at=site.now(), why=why)
    return recommendations.one(session, number)


def note_roll_back(
    site: Site, session: Session, number: int, *, who: str, why: str
) -> StoredRecommendation:
    """Note that a promoted recommendation is no longer live."""
    recommendations.move(
        session,
        number,
        State.ROLLED_BACK,
        who=who,
        at=site.now(),
        why=why,
        expected=State.PROMOTED,
    )
    return recommendations.one(session, number)


def put_back(
    site: Site, session: Session, number: int, former: State, *, who: str, why: str
) -> None:
    """Note that an approved recommendation did not come into force."""
    recommendations.move(
        session, number, former, who=who, at=site.now(), why=why, expected=State.APPROVED
    )


def plan_without(live: Plan, change: PlanChange) -> Plan:
    """Return the live plan with every place that a change touched as it was before the change."""
    was = {(entry.route, entry.load): entry for entry in change.before.entries}
    became = {(entry.route, entry.load): entry for entry in change.plan.entries}
    touched = {place for place in was | became if was.get(place) != became.get(place)}
    kept = [entry for entry in live.entries if (entry.route, entry.load) not in touched]
    restored: list[PlanEntry] = [was[place] for place in sorted(touched) if place in was]
    return Plan(version=live.version, default=live.default, entries=(*kept, *restored))


def own_plan(site: Site, who: str) -> Plan:
    """Return the live plan; a restarted engine first gets back what was approved before.

    A change on top of its empty plan would drop what the other routes had. Where the engine
    refuses what it had, by other drafters perhaps, its live plan is all there is.
    """
    live = site.actuator.read_back()
    try:
        return restore(site, live, who) or live
    except PlanRefused:
        return live


def require_same_ground(stored: StoredRecommendation, live: Plan) -> None:
    """Refuse a change whose starting point is no longer what the route runs."""
    for change in stored.said.changes:
        found = live.setting_for(stored.route, change.load)
        if change.proposed != change.current != found:
            raise StateChanged(
                f"recommendation {stored.id} was made for {change.current.label} on route "
                f"{stored.route} at load {change.load.label}, but {found.label} runs there now; "
                "wait for the next recommendation"
            )


def _take(site: Site, stored: StoredRecommendation, intent: Intent) -> int:
    """Take the recommendation and put the change on record, both or neither."""
    with site.store.writing() as session:
        recommendations.move(
            session,
            stored.id,
            State.APPROVED,
            who=intent.who,
            at=site.now(),
            why=intent.why,
            expected=stored.state,
        )
        return begin(site, session, intent)


def _send_or_put_back(
    site: Site, stored: StoredRecommendation, intent: Intent, change: int
) -> Plan:
    try:
        return send(site, intent)
    except OutcomeUnknown:
        raise
    except ActuatorError as error:
        why = f"not applied, the plan before stays in force: {str(error).splitlines()[0]}"
        with site.store.writing() as session:
            fail(session, change, error)
            put_back(site, session, stored.id, stored.state, who=intent.who, why=why)
        raise


def _move(
    site: Site,
    number: int,
    to: State,
    *,
    who: str,
    why: str,
) -> StoredRecommendation:
    reason = audit.reason_line(why)
    with site.store.writing() as session:
        recommendations.move(session, number, to, who=who, at=site.now(), why=reason)
        return recommendations.one(session, number)


def _change_of(session: Session, stored: StoredRecommendation) -> PlanChange:
    changes = plans.listed(
        session,
        stored.engine,
        outcome=plans.Outcome.APPLIED,
        recommendation=stored.id,
        limit=1,
    )
    if not changes:
        raise NotFound(
            f"recommendation {stored.id} never changed a plan; there is nothing to roll back"
        )
    return changes[0]
