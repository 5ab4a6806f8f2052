"""Bring a plan into force, read it back, and tell apart what failed from what is not known.

A change is on record before it is sent, so that one whose service was killed in the middle can be
settled later (``keep``).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from collectors.records import Plan
from tuner.errors import ActuatorError, EngineUnreachable, OutcomeUnknown
from tuner.store import plans, trials
from tuner.store.plans import Outcome, PlanChange, Purpose
from tuner.workflows.deciding import Draw, note_decision
from tuner.workflows.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A change somebody wants.

    Attributes:
        plan: plan to bring into force.
        before: plan for which the change was made.
        recommendation: recommendation behind it; None for a plan set by hand.
        who: token name of an operator, or the name of a job.
        why: one line.
        draw: how it was drawn; None where it was not.
        purpose: a change that is meant to last, or an exploration and its end.
    """

    plan: Plan
    before: Plan
    recommendation: int | None
    who: str
    why: str
    draw: Draw | None = None
    purpose: Purpose = Purpose.CHANGE


def apply(site: Site, intent: Intent) -> Plan:
    """Apply a plan that no recommendation stands behind; return the plan read back.

    Raises:
        OutcomeUnknown: the engine fell silent after the plan was sent.
        ActuatorError: the plan is not in force; the one before is.
    """
    number, live = attempt(site, intent)
    with site.store.writing() as session:
        succeed(site, session, number, live, intent)
    return live


def attempt(site: Site, intent: Intent) -> tuple[int, Plan]:
    """Note the intent and send its plan; return the number of the note and the plan read back.

    The caller notes the success, in one transaction with what follows from it.

    Raises:
        OutcomeUnknown: the engine fell silent after the plan was sent.
        ActuatorError: the plan is not in force; the one before is, and the note says so.
    """
    with site.store.writing() as session:
        number = begin(site, session, intent)
    try:
        return number, send(site, intent)
    except OutcomeUnknown:
        raise
    except ActuatorError as error:
        with site.store.writing() as session:
            fail(session, number, error)
        raise


def restore(site: Site, live: Plan, who: str) -> Plan | None:
    """Give a restarted engine its last approved plan back; None where there is nothing to do.

    A fresh engine runs plan version 0. A plan that somebody changed by another way is left alone.
    A trial ends with the engine that it ran on.

    Raises:
        OutcomeUnknown: the engine fell silent after the plan was sent.
        ActuatorError: the plan is not in force; the one before is.
    """
    with site.store.reading() as session:
        latest = plans.latest_applied(session, site.engine)
        trial = None if latest is None else trials.in_plan_of(session, site.engine, latest.id)
    if latest is None or live.version > 0:
        return None
    plan = latest.plan if trial is None else trial.taken_out_of(latest.plan)
    why = f"{site.engine} restarted without its plan"
    restored = None
    if plan.digest != live.digest:
        intent = Intent(plan=plan, before=live, recommendation=None, who=who, why=why)
        restored = apply(site, intent)
    if trial is not None:
        with site.store.writing() as session:
            trials.end(session, trial, site.clock(), f"{site.engine} restarted")
    return restored


def begin(site: Site, session: Session, intent: Intent, again: int | None = None) -> int:
    """Put a change on record before it is sent; return its number.

    Args:
        site: the engine.
        session: of ``store.writing()``.
        intent: the change.
        again: number of a failed attempt at the same, which is taken up again.
    """
    change = PlanChange(
        engine=site.engine,
        recommendation=intent.recommendation,
        at=site.now(),
        who=intent.who,
        why=intent.why,
        outcome=Outcome.STARTED,
        plan=intent.plan,
        before=intent.before,
        purpose=intent.purpose,
    )
    if again is not None and plans.begin_again(session, again, change):
        return again
    return plans.add(session, change)


def send(site: Site, intent: Intent) -> Plan:
    """Change the engine and return the live plan; look again where the answer got lost.

    Raises:
        OutcomeUnknown: the engine fell silent, now and when asked again.
        ActuatorError: the plan is not in force; the one before is.
    """
    try:
        return site.actuator.apply(intent.plan, intent.before.digest).live
    except EngineUnreachable as lost:
        live = _live_or_unknown(site, lost)
        if live.digest == intent.plan.digest:
            return live
        raise


def succeed(site: Site, session: Session, number: int, live: Plan, intent: Intent) -> None:
    """Note that a change took effect, and what was decided by it."""
    plans.close(session, number, Outcome.APPLIED, read_back_digest=live.digest)
    note_decision(site, session, live, who=intent.who, draw=intent.draw)


def fail(session: Session, number: int, error: ActuatorError) -> None:
    """Note that a change did not take effect."""
    plans.close(session, number, Outcome.FAILED, error=str(error).splitlines()[0])


def _live_or_unknown(site: Site, lost: EngineUnreachable) -> Plan:
    try:
        return site.actuator.read_back()
    except EngineUnreachable as error:
        raise OutcomeUnknown(
            f"engine {site.engine} fell silent ({lost}); whether its plan changed is settled when "
            "it answers again"
        ) from error
