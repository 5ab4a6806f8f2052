"""Keep the last approved plan in force: after a restart, a lost answer, a trial that is over."""

from __future__ import annotations

from sqlalchemy.orm import Session

from collectors.records import Plan
from tuner.store import plans, recommendations
from tuner.store.plans import Outcome, PlanChange
from tuner.store.recommendations import State
from tuner.workflows.apply import restore
from tuner.workflows.review import note_roll_back, promote, put_back
from tuner.workflows.site import Site
from tuner.workflows.trial import end_trial

WHO = "keep_plan"
SETTLE_AFTER_S = 60.0
"""A change younger than this may still be at work in another thread or service."""

RETRY_AFTER_S = 600.0
"""A plan that a restarted engine refused is not offered again before this."""


def keep_plan(site: Site) -> str:
    """Settle changes whose outcome got lost, restore a restarted engine's plan, end a trial.

    A fresh engine runs plan version 0. A plan that somebody changed by another way is left alone.

    Raises:
        EngineUnreachable: the plan in force cannot be read.
        ActuatorError: the engine did not take its plan back.
    """
    with site.plan_lock:
        live = site.actuator.read_back()
        done = [_settle(site, change, live) for change in _unsettled(site)]
        restored = _restore(site, live)
        ended = None if restored else end_trial(site, live, who=WHO)
    lines = [*done, *(line for line in (restored, ended) if line)]
    return "; ".join(lines) or f"plan {live.digest[:12]} version {live.version} is live"


def _unsettled(site: Site) -> list[PlanChange]:
    with site.store.reading() as session:
        started = plans.listed(session, site.engine, outcome=Outcome.STARTED)
    now = site.now()
    return [one for one in started if (now - one.at).total_seconds() > SETTLE_AFTER_S]


def _settle(site: Site, change: PlanChange, live: Plan) -> str:
    """Note what became of a change, and of the recommendation behind it."""
    is_live = _is_in_force(change, live)
    outcome = Outcome.APPLIED if is_live else Outcome.FAILED
    error = None if is_live else f"found {live.digest} in force when the engine answered again"
    with site.store.writing() as session:
        plans.close(session, change.id, outcome, read_back_digest=live.digest, error=error)
        if change.recommendation is not None:
            _settle_recommendation(site, session, change.recommendation, is_live)
    return f"plan change {change.id} turned out {outcome}"


def _is_in_force(change: PlanChange, live: Plan) -> bool:
    """Return whether the live plan has what a change wanted wherever the change touched it.

    Other routes may have been changed since then.
    """
    touched = {
        (entry.route, entry.load) for entry in set(change.plan.entries) ^ set(change.before.entries)
    }
    return live.digest == change.plan.digest or all(
        live.setting_for(*place) == change.plan.setting_for(*place) for place in touched
    )


def _settle_recommendation(site: Site, session: Session, number: int, is_live: bool) -> None:
    stored = recommendations.one(session, number)
    why = "settled when the engine answered again"
    if stored.state is State.APPROVED and is_live:
        promote(site, session, number, who=WHO, why=why)
    elif stored.state is State.APPROVED:
        former = recommendations.transitions(session, number)[-1].before or State.PENDING
        put_back(site, session, number, former, who=WHO, why=why)
    elif stored.state is State.PROMOTED and is_live:
        note_roll_back(site, session, number, who=WHO, why=why)


def _restore(site: Site, live: Plan) -> str | None:
    with site.store.reading() as session:
        tried = plans.listed(session, site.engine, limit=1)
    if live.version == 0 and tried and _was_refused_lately(site, tried[0]):
        return f"plan {tried[0].plan.digest[:12]} is not restored: {tried[0].error}"
    restored = restore(site, live, WHO)
    if restored is None:
        return None
    return f"plan {restored.digest[:12]} restored: {site.engine} restarted without its plan"


def _was_refused_lately(site: Site, change: PlanChange) -> bool:
    """Return whether the newest attempt was ours, failed, and is too young to be repeated."""
    age_s = (site.now() - change.at).total_seconds()
    is_ours = change.who == WHO and change.outcome is Outcome.FAILED
    return is_ours and age_s < RETRY_AFTER_S
