"""One tick of the control loop: look, decide for each load level, write what changes.

Only routes with an active envelope are changed, by one plan that expects the plan it was made for.
Killed at any point, the engine keeps the last plan it read back; memory comes back from windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collectors.records import OFF, LoadLevel, Plan, PlanEntry, Setting
from policy.controller import Controller
from policy.drift_alarms import AlarmKind
from policy.knowledge import Mix, latencies
from policy.options import ControlOptions, RecommendOptions
from tuner.errors import ActuatorError, OutcomeUnknown, PlanConflict
from tuner.store import drift, envelopes, facts, observations
from tuner.store.envelopes import EnvelopeState, StoredEnvelope
from tuner.workflows.apply import Intent, apply
from tuner.workflows.autopilot_state import WHO, fall_back, give_back, listed, resume
from tuner.workflows.drift import waiting_reason
from tuner.workflows.evaluate import missing_reason
from tuner.workflows.ingest import silence_reason
from tuner.workflows.observe import SETTLING_S, history, window_of
from tuner.workflows.site import Site

GATE_S = 30.0
"""Time for which the answer of the gate holds, in seconds: evidence is fresh for a day."""

RECENT_S = 600.0
"""Time back to which a load level counts as seen lately, in seconds."""

LIMIT_WINDOWS = 5
"""Windows over which a route's limits are watched."""

Place = tuple[str, LoadLevel]
Gate = Mapping[tuple[str, Setting], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Why the loop must not act on a route.

    Attributes:
        state: paused where it ends by itself, stopped where an operator must start the loop again.
        reason: one line.
    """

    state: EnvelopeState
    reason: str


def autopilot(site: Site) -> str:
    """Make one tick; return what came of it in one line.

    Raises:
        ActuatorError: the engine did not take a plan; the routes fell back.
        CollectorError: the engine's capabilities cannot be read.
    """
    with site.plan_lock:
        with site.store.reading() as session:
            known = envelopes.current(session, site.engine)
        if not known:
            return "no route has an envelope"
        silence = silence_reason(site)
        for one in listed(site):
            _check(site, one, silence)
        give_back(site, who=WHO)
        active = _active(site)
        if not active:
            return "the loop acts on no route: " + _reasons(site)
        live = site.actuator.read_back()
        gate = _gate(site, active)
        if _lost_its_gate(site, active, live, gate):
            give_back(site, who=WHO)
            return "fell back: " + _reasons(site)
        return _act(site, active, live, gate)


def fallback_of(site: Site, one: StoredEnvelope, silence: str | None) -> Fallback | None:
    """Return why the loop must not act on a route now; None where it may."""
    if one.envelope.is_expired(site.clock()):
        return Fallback(state=EnvelopeState.WITHDRAWN, reason="the envelope expired")
    if silence is not None:
        return Fallback(state=EnvelopeState.PAUSED, reason=silence)
    reason = _alarm(site, one.route) or _broken_limits(site, one)
    return None if reason is None else Fallback(state=EnvelopeState.STOPPED, reason=reason)


def _check(site: Site, one: StoredEnvelope, silence: str | None) -> None:
    """Note a fallback or its end; what is stopped stays so until an operator starts it."""
    found = fallback_of(site, one, silence)
    if found is None:
        if one.state is EnvelopeState.PAUSED:
            resume(site, one)
    elif found.state is not one.state and (
        one.state is not EnvelopeState.STOPPED or found.state is EnvelopeState.WITHDRAWN
    ):
        fall_back(site, one, found.state, found.reason)


def _alarm(site: Site, route: str) -> str | None:
    """Return what an open alarm of a route, or of the engine, tells against acting on it."""
    waiting = waiting_reason(site, route)
    if waiting is not None:
        return f"{route} is {waiting}"
    with site.store.reading() as session:
        stored = drift.alarms(session, site.engine, open_only=True)
    decays = [
        one.alarm
        for one in stored
        if one.alarm.kind is AlarmKind.DECAY and one.alarm.route in (route, None)
    ]
    return f"drift alarm: {decays[0].saw}" if decays else None


def _broken_limits(site: Site, one: StoredEnvelope) -> str | None:
    limits = [route for route in site.settings.routes if route.name == one.route]
    if not limits or not one.envelope.keeps_limits:
        return None
    now_s = site.clock()
    start_s = max(one.changed_at.timestamp(), now_s - LIMIT_WINDOWS * site.settings.window_s)
    with site.store.reading() as session:
        windows = observations.between(session, site.engine, start_s, now_s)
    seen = latencies(seen for window in windows for seen in window.requests)
    ratios = (
        latency.burn_ratio(limits[0]) for (name, _), latency in seen.items() if name == one.route
    )
    worst = max((ratio for ratio in ratios if ratio is not None), default=0.0)
    if worst <= RecommendOptions().max_burn_ratio:
        return None
    return f"{worst:.0%} of requests broke the limits of {one.route}"


def _active(site: Site) -> tuple[StoredEnvelope, ...]:
    return tuple(one for one in listed(site) if one.state is EnvelopeState.ACTIVE)


def _reasons(site: Site) -> str:
    return "; ".join(f"{one.route} {one.state}: {one.reason}" for one in listed(site)) or "none"


def _gate(site: Site, active: Sequence[StoredEnvelope]) -> Gate:
    """Return why each arm of the engine may not be used on a route; None where it may.

    Its outputs must have passed there; its speed the loop watches itself, at every load level.
    """
    memory, now_s = site.autopilot, site.clock()
    is_known = {one.route for one in active} <= {route for route, _ in memory.gate}
    if not is_known or not 0 <= now_s - memory.gate_s < GATE_S:
        is_needed = site.settings.require_evaluation
        memory.gate = {
            (one.route, arm): missing_reason(site, arm, one.route, ()) if is_needed else None
            for one in active
            for arm in site.possible_arms()
        }
        memory.gate_s = now_s
    return memory.gate


def _lost_its_gate(
    site: Site,
    active: Sequence[StoredEnvelope],
    live: Plan,
    gate: Gate,
) -> bool:
    """Fall back on routes that run what the loop chose and what is not proven any more."""
    has_lost = False
    for one in active:
        approved = {(entry.load, entry.setting) for entry in one.approved}
        for entry in live.entries:
            if entry.route != one.route or (entry.load, entry.setting) in approved:
                continue
            unknown = f"{entry.setting.label} is not an arm of the engine"
            reason = gate.get((entry.route, entry.setting), unknown)
            if reason is not None and entry.setting != OFF:
                fall_back(site, one, EnvelopeState.STOPPED, reason)
                has_lost = True
                break
    return has_lost


def _act(
    site: Site,
    active: Sequence[StoredEnvelope],
    live: Plan,
    gate: Gate,
) -> str:
    arms = site.possible_arms()
    controller = _learned(site, active, arms)
    legal = {
        one.route: frozenset(
            arm for arm in one.envelope.within(arms) if gate.get((one.route, arm), "") is None
        )
        for one in active
    }
    mixes = site.autopilot.mixes_since(site.clock() - RECENT_S)
    wanted: dict[Place, Setting] = {}
    for mix in mixes:
        wanted |= _decided(site, controller, active, live, legal, mix)
    changed = {
        place: setting for place, setting in wanted.items() if live.setting_for(*place) != setting
    }
    if not changed:
        return f"decided for {len(mixes)} load levels of {len(active)} routes: no change"
    return _write(site, active, live, changed)


def _learned(site: Site, active: Sequence[StoredEnvelope], arms: tuple[Setting, ...]) -> Controller:
    """Return the loop with everything folded that the journal holds by now."""
    memory = site.autopilot
    share = min(one.envelope.exploring_share for one in active)
    with site.store.reading() as session:
        cursor = facts.latest_cursor(session, site.engine)
    caught_up_s = site.clock() if cursor is None else cursor.caught_up_s or 0.0
    end_s = min(site.clock(), caught_up_s) - SETTLING_S
    is_same = memory.arms == arms and memory.exploring_share == share
    if memory.controller is None or not is_same:
        controller = Controller(
            arms,
            site.generator(),
            ControlOptions(half_life_s=site.settings.half_life_s, exploring_share=share),
            {route.name: route for route in site.settings.routes},
        )
        memory.observe(controller, history(site, end_s), end_s)
        memory.controller, memory.arms, memory.exploring_share = controller, arms, share
    elif end_s > memory.through_s:
        with site.store.reading() as session:
            window = window_of(session, site.engine, memory.through_s, end_s)
        memory.observe(memory.controller, (window,), end_s)
    return memory.controller


def _decided(
    site: Site,
    controller: Controller,
    active: Sequence[StoredEnvelope],
    live: Plan,
    legal: Mapping[str, frozenset[Setting]],
    mix: Mix,
) -> dict[Place, Setting]:
    """Return what the routes on autopilot are to run at one load level."""
    free = {one.route for one in active if one.envelope.covers(mix.load)} & set(mix.rows_by_route)
    if not free:
        return {}
    pinned = {
        name: live.setting_for(name, mix.load) for name in mix.rows_by_route if name not in free
    }
    decision = controller.decide(mix, site.clock(), allowed=legal, pinned=pinned)
    return {(name, mix.load): decision.settings[name] for name in free}


def _write(
    site: Site, active: Sequence[StoredEnvelope], live: Plan, changed: Mapping[Place, Setting]
) -> str:
    why = "; ".join(_sentences(live, changed))
    intent = Intent(
        plan=with_changes(live, changed), before=live, recommendation=None, who=WHO, why=why[:500]
    )
    try:
        apply(site, intent)
    except PlanConflict:
        return "the plan changed meanwhile; the next tick decides anew"
    except OutcomeUnknown:
        raise
    except ActuatorError as error:
        reason = f"the engine did not take the plan: {str(error).splitlines()[0]}"
        for one in active:
            fall_back(site, one, EnvelopeState.STOPPED, reason)
        give_back(site, who=WHO)
        raise
    _note_written(site, active, changed)
    give_back(site, who=WHO)
    return why


def _note_written(
    site: Site, active: Sequence[StoredEnvelope], changed: Mapping[Place, Setting]
) -> None:
    """Count the changes; what was stopped while they were written is owed its entries again."""
    with site.store.writing() as session:
        for one in envelopes.by_number(session, {stored.id for stored in active}):
            envelopes.count_changes(session, one.id, sum(one.route == name for name, _ in changed))
            if one.state is not EnvelopeState.ACTIVE:
                envelopes.note_owed(session, one.id)


def with_changes(plan: Plan, changed: Mapping[Place, Setting]) -> Plan:
    """Return the next plan: changed places have entries of their own, all others stay as is."""
    kept = tuple(entry for entry in plan.entries if (entry.route, entry.load) not in changed)
    added = tuple(
        PlanEntry(route=route, load=load, setting=setting)
        for (route, load), setting in sorted(changed.items(), key=lambda one: one[0])
    )
    return replace(plan, version=plan.version + 1, entries=(*kept, *added))


def _sentences(live: Plan, changed: Mapping[Place, Setting]) -> Iterator[str]:
    for (route, load), setting in sorted(changed.items(), key=lambda one: one[0]):
        before = live.setting_for(route, load)
        yield f"{route} at load {load.label}: {before.label} -> {setting.label}"
