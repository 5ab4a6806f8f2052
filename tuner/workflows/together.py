"""Approve several recommendations as one: all of their changes come into force, or none does.

One transaction takes all of them, one plan goes to the engine, one transaction promotes them. Each
gets its own plan change on record, on top of the one before it, so that each can be rolled back
alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from collectors.records import Plan
from policy.recommend import plan_with
from tuner.errors import ActuatorError, BadRequest, OutcomeUnknown
from tuner.store import audit, recommendations
from tuner.store.recommendations import State, StoredRecommendation
from tuner.workflows.apply import Intent, begin, fail, send, succeed
from tuner.workflows.baseline import without_exploration
from tuner.workflows.review import (
    approvable,
    own_plan,
    promote,
    put_back,
    require_same_ground,
)
from tuner.workflows.site import Site
from tuner.workflows.trial import end_trial_under

Taken = tuple[StoredRecommendation, Intent, int]
"""A recommendation, its part of the change, and the number of that part on record."""


def approve_together(
    site: Site, numbers: Sequence[int], *, who: str, why: str = ""
) -> tuple[StoredRecommendation, ...]:
    """Put the changes of several routes into force at once, and return them, promoted.

    Raises:
        BadRequest: fewer than two, one twice, two of one route, one that recommends no change, or a
            reason that is too long.
        NotFound: there is no such recommendation.
        Outdated: one of them is superseded.
        StateChanged: a state does not allow it, somebody was first, or a route runs something else.
        NotEvaluated: a Setting lacks the evaluation that ``require_evaluation`` asks for.
        OutcomeUnknown: the engine fell silent in the middle; all stay approved until it answers.
        ActuatorError: the engine did not take the plan; states and live plan are as before.
    """
    reason = audit.reason_line(why or "approved together")
    _require_set(numbers)
    found = [approvable(site, number) for number in numbers]
    _require_routes(found)
    for stored in found:
        end_trial_under(site, stored.said, who=who)
    before = own_plan(site, who)
    ground = without_exploration(site, before)
    for stored in found:
        require_same_ground(stored, ground)
    named = ", ".join(f"#{number}" for number in numbers)
    taken = _take_all(site, found, before, who, f"{reason} ({named} together)")
    live = _send_or_put_all_back(site, taken, before)
    with site.store.writing() as session:
        for _, intent, change in taken:
            succeed(site, session, change, live, intent)
        return tuple(
            promote(site, session, stored.id, who=who, why=f"plan {live.digest} is live")
            for stored, _, _ in taken
        )


def _require_set(numbers: Sequence[int]) -> None:
    if len(numbers) < 2 or len(set(numbers)) < len(numbers):
        given = " ".join(str(number) for number in numbers)
        raise BadRequest(f"a set is two or more different recommendations, got {given or 'none'}")


def _require_routes(found: Sequence[StoredRecommendation]) -> None:
    routes = [stored.route for stored in found]
    twice = sorted({route for route in routes if routes.count(route) > 1})
    if twice:
        raise BadRequest(f"a set holds one recommendation a route, and two are for {twice[0]}")


def _take_all(
    site: Site, found: Sequence[StoredRecommendation], before: Plan, who: str, why: str
) -> list[Taken]:
    """Take all recommendations and put their changes on record, or none of it."""
    taken: list[Taken] = []
    with site.store.writing() as session:
        for stored in found:
            recommendations.move(
                session,
                stored.id,
                State.APPROVED,
                who=who,
                at=site.now(),
                why=why,
                expected=stored.state,
            )
            plan = plan_with(before, stored.said)
            intent = Intent(plan=plan, before=before, recommendation=stored.id, who=who, why=why)
            taken.append((stored, intent, begin(site, session, intent)))
            before = plan
    return taken


def _send_or_put_all_back(site: Site, taken: Sequence[Taken], before: Plan) -> Plan:
    _, last, _ = taken[-1]
    whole = Intent(plan=last.plan, before=before, recommendation=None, who=last.who, why=last.why)
    try:
        return send(site, whole)
    except OutcomeUnknown:
        raise
    except ActuatorError as error:
        why = f"not applied, the plan before stays in force: {str(error).splitlines()[0]}"
        with site.store.writing() as session:
            for stored, intent, change in taken:
                fail(session, change, error)
                put_back(site, session, stored.id, stored.state, who=intent.who, why=why)
        raise
