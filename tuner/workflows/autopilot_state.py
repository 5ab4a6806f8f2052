"""Put routes on autopilot and take them off: approve, withdraw, stop, start, fall back.

Whoever takes a route off gives the engine its approved entries back at once and reads them back.
What could not be given back is owed, and the next tick tries again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.orm import Session

from collectors.records import Plan, PlanEntry
from policy.envelope import Envelope
from tuner.errors import NotFound, StateChanged
from tuner.store import audit, envelopes, trials
from tuner.store.audit import AuditEntry, reason_line
from tuner.store.envelopes import Change, EnvelopeState, StoredEnvelope
from tuner.workflows.apply import Intent, apply
from tuner.workflows.site import Site

WHO = "autopilot"


def approve_envelope(site: Site, envelope: Envelope, *, who: str, why: str) -> StoredEnvelope:
    """Let the control loop act on a route within bounds; replaces the route's former bounds.

    Raises:
        StateChanged: a trial runs on the route.
        BadRequest: the reason is empty or too long.
        ActuatorError: the plan cannot be read, or what is owed cannot be given back.
    """
    with site.plan_lock:
        give_back(site, who=who)
        live = site.actuator.read_back()
        with site.store.writing() as session:
            trial = trials.open_on(session, site.engine)
            if trial is not None and trial.route == envelope.route:
                raise StateChanged(f"the {trial.name} is not over; approve when it is")
            former = _named(envelopes.current(session, site.engine), envelope.route)
            is_flying = bool(former) and former[0].state is EnvelopeState.ACTIVE
            stored = StoredEnvelope(
                engine=site.engine,
                envelope=envelope,
                approved=former[0].approved if is_flying else entries_of(live, envelope.route),
                at=site.now(),
                who=who,
                why=reason_line(why),
                changed_at=site.now(),
                changed_by=who,
                reason="approved",
            )
            number = envelopes.approve(session, stored)
            _audit(site, session, who, "autopilot_approve", envelope.route, stored.why)
    return replace(stored, id=number)


def withdraw(site: Site, route: str, *, who: str, why: str) -> tuple[StoredEnvelope, ...]:
    """Take a route's envelope away; its approved entries are in force again."""
    return _take_off(site, route, EnvelopeState.WITHDRAWN, who=who, why=why)


def stop(site: Site, route: str | None, *, who: str, why: str) -> tuple[StoredEnvelope, ...]:
    """Stop the loop on a route, or on all of them; approved entries are in force again.

    Raises:
        NotFound: the route has no envelope.
        ActuatorError: the loop is stopped, but the engine has yet to take its entries back.
    """
    return _take_off(site, route, EnvelopeState.STOPPED, who=who, why=why)


def start(site: Site, route: str | None, *, who: str, why: str) -> tuple[StoredEnvelope, ...]:
    """Let the loop act again where it was stopped or paused.

    Raises:
        NotFound: the route has no envelope.
        ActuatorError: what is owed cannot be given back.
    """
    with site.plan_lock:
        give_back(site, who=who)
        live = site.actuator.read_back()
        with site.store.writing() as session:
            found = _named(_open(envelopes.current(session, site.engine)), route)
            _require(found, route)
            for one in found:
                if one.state is EnvelopeState.ACTIVE:
                    continue
                to = Change(
                    state=EnvelopeState.ACTIVE,
                    at=site.now(),
                    who=who,
                    reason=reason_line(why),
                    is_owed=False,
                )
                envelopes.restart(session, one, to, entries_of(live, one.route))
                _audit(site, session, who, "autopilot_start", one.route, to.reason)
    return _named(listed(site), route)


def fall_back(site: Site, one: StoredEnvelope, state: EnvelopeState, reason: str) -> None:
    """Note that the loop does not act on a route; the engine is owed the approved entries."""
    to = Change(state=state, at=site.now(), who=WHO, reason=reason, is_owed=True)
    with site.store.writing() as session:
        if envelopes.change(session, one, to):
            envelopes.count_fallback(session, one.id)
            _audit(site, session, WHO, f"autopilot_{state.value}", one.route, reason)


def resume(site: Site, one: StoredEnvelope) -> None:
    """Note that the loop acts again, as what was stale is fresh."""
    to = Change(
        state=EnvelopeState.ACTIVE, at=site.now(), who=WHO, reason="fresh again", is_owed=False
    )
    with site.store.writing() as session:
        envelopes.change(session, one, to)


def listed(site: Site) -> tuple[StoredEnvelope, ...]:
    """Return the envelopes that are in force or stopped, by route."""
    with site.store.reading() as session:
        return _open(envelopes.current(session, site.engine))


def on_autopilot_reason(site: Site, route: str) -> str | None:
    """Say that a route is the loop's; None where it is for people to decide."""
    found = [one for one in _named(listed(site), route) if one.is_on_autopilot]
    if not found:
        return None
    return f"on autopilot since {found[0].at:%Y-%m-%d %H:%M} UTC, approved by {found[0].who}"


def give_back(site: Site, *, who: str) -> Plan | None:
    """Bring the approved entries of routes that are owed them into force; None where none are.

    Raises:
        ActuatorError: they are not in force; they stay owed.
    """
    with site.store.reading() as session:
        owed = [one for one in envelopes.current(session, site.engine) if one.is_owed]
    if not owed:
        return None
    live = site.actuator.read_back()
    plan = live
    for one in owed:
        plan = with_entries(plan, one.route, one.approved)
    if plan.digest != live.digest:
        why = "; ".join(f"autopilot off on {one.route}: {one.reason}" for one in owed)
        intent = Intent(
            plan=replace(plan, version=live.version + 1),
            before=live,
            recommendation=None,
            who=who,
            why=f"{why}; last approved entries back"[: audit.MAX_REASON],
        )
        plan = apply(site, intent)
    with site.store.writing() as session:
        for one in owed:
            envelopes.note_given_back(session, one.id)
    return plan


def entries_of(plan: Plan, route: str) -> tuple[PlanEntry, ...]:
    """Return a route's entries."""
    return tuple(entry for entry in plan.entries if entry.route == route)


def with_entries(plan: Plan, route: str, entries: tuple[PlanEntry, ...]) -> Plan:
    """Return a plan with other entries of one route; those of others stay as they are."""
    others = tuple(entry for entry in plan.entries if entry.route != route)
    return replace(plan, entries=(*others, *entries))


def _take_off(
    site: Site, route: str | None, state: EnvelopeState, *, who: str, why: str
) -> tuple[StoredEnvelope, ...]:
    reason = reason_line(why)
    to = Change(state=state, at=site.now(), who=who, reason=reason, is_owed=True)
    with site.store.writing() as session:
        found = _named(_open(envelopes.current(session, site.engine)), route)
        _require(found, route)
        for one in found:
            is_flying = one.state is EnvelopeState.ACTIVE
            if envelopes.change(session, one, replace(to, is_owed=is_flying or one.is_owed)):
                _audit(site, session, who, f"autopilot_{state.value}", one.route, reason)
    with site.plan_lock:
        give_back(site, who=who)
    return found


def _open(stored: Sequence[StoredEnvelope]) -> tuple[StoredEnvelope, ...]:
    return tuple(one for one in stored if one.state is not EnvelopeState.WITHDRAWN)


def _named(stored: Sequence[StoredEnvelope], route: str | None) -> tuple[StoredEnvelope, ...]:
    return tuple(one for one in stored if route is None or one.route == route)


def _require(found: Sequence[StoredEnvelope], route: str | None) -> None:
    if not found:
        what = "no route has an envelope" if route is None else f"route {route!r} has no envelope"
        raise NotFound(f"{what}; approve one: spectuner autopilot approve ROUTE")


def _audit(site: Site, session: Session, who: str, action: str, route: str, detail: str) -> None:
    entry = AuditEntry(
        at=site.now(),
        who=who,
        action=action,
        target=f"route {route}",
        outcome="done",
        detail=detail,
    )
    audit.add(session, entry)
