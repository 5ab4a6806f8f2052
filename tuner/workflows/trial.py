"""Live trials: a Setting on one route and load level until its time or its tokens are used up.

Beginning and end are plan changes on record and the trial itself is a row, so that a service that
restarts in the middle ends it too. What ends one is looked at after every pull of the journal.
"""

from __future__ import annotations

from dataclasses import replace

from collectors.records import Plan
from policy.knowledge import latencies
from policy.options import RecommendOptions
from policy.types import Evidence, Recommendation, Trial
from tuner.errors import ActuatorError, BadRequest, OutcomeUnknown, StateChanged
from tuner.store import observations, plans, trials
from tuner.store.plans import Outcome
from tuner.store.trials import StoredTrial
from tuner.workflows.apply import Intent, begin, fail, send, succeed
from tuner.workflows.autopilot_state import on_autopilot_reason
from tuner.workflows.deciding import Draw
from tuner.workflows.drift import waiting_reason
from tuner.workflows.ingest import silence_reason
from tuner.workflows.site import Site
from tuner.workflows.trial_tokens import DAY_S, allowances

LONGEST_S = 600.0
_BROKE = "of its requests broke its limits"


def start(site: Site, route: str, trial: Trial, *, who: str) -> StoredTrial:
    """Put a proposed Setting into force for as long as its share of the route's tokens lasts.

    Raises:
        StateChanged: another trial is running.
        BadRequest: the Setting is in force there, a trial there broke the route's limits today, an
            alarm of the route is open, its share of tokens is too small for a window, or the
            journal is not read, so that tokens could not be counted.
        ActuatorError: the engine did not take the plan; the one before is in force.
    """
    with site.plan_lock:
        live = site.actuator.read_back()
        if running(site, live) is not None:
            raise StateChanged("another trial is running; one at a time tells what it did")
        allowed = allowances(site).of(route, trial)
        reason = (
            uncounted_reason(site)
            or refusal_reason(site, live, route, trial)
            or allowed.shortage_reason(site.settings)
        )
        if reason is not None:
            raise BadRequest(reason)
        wanted = StoredTrial(
            engine=site.engine,
            route=route,
            load=trial.load,
            setting=trial.setting,
            former=live.setting_for(route, trial.load),
            start_s=site.clock(),
            end_s=float(int(site.clock() + min(LONGEST_S, allowed.seconds))),
            most_tokens=allowed.tokens,
            who=who,
        )
        return put_in_force(site, live, wanted)


def put_in_force(
    site: Site, live: Plan, wanted: StoredTrial, draw: Draw | None = None
) -> StoredTrial:
    """Begin a trial.

    Args:
        site: the engine.
        live: the plan in force.
        wanted: what to try.
        draw: how it came to be chosen; None where a person chose it.

    Raises:
        ActuatorError: the engine did not take the plan; the one before is in force.
    """
    intent = Intent(
        plan=wanted.put_into(live),
        before=live,
        recommendation=None,
        who=wanted.who,
        why=f"{wanted.name} until {wanted.end_s:.0f}",
        draw=draw,
    )
    with site.store.writing() as session:
        change = begin(site, session, intent)
        begun = replace(wanted, change=change)
        begun = replace(begun, id=trials.add(session, begun))
    try:
        reached = send(site, intent)
    except OutcomeUnknown:
        raise
    except ActuatorError as error:
        with site.store.writing() as session:
            fail(session, change, error)
            trials.end(session, begun, site.clock(), "the engine refused it")
        raise
    with site.store.writing() as session:
        succeed(site, session, change, reached, intent)
    return begun


def live_trials(said: Recommendation) -> tuple[Trial, ...]:
    """Return what a recommendation would try on live traffic."""
    return tuple(trial for trial in said.trials if trial.by is Evidence.LIVE)


def running(site: Site, live: Plan) -> StoredTrial | None:
    """Return the trial whose Setting is in force, over or not; None without one.

    One that somebody replaced is noted as ended: its Setting in force anew was approved.
    """
    with site.store.reading() as session:
        trial = trials.open_on(session, site.engine)
        if trial is None:
            return None
        began = plans.outcome_of(session, trial.change)
        since = plans.listed(session, site.engine, outcome=Outcome.APPLIED, after=trial.change or 0)
    if not trial.is_in(live):
        # A plan that was read before the trial began does not show it.
        live = site.actuator.read_back()
    if all(trial.is_in(plan) for plan in (live, *(change.plan for change in since))):
        return trial
    if began is not Outcome.STARTED and live.version > 0:
        _close(site, trial, "another plan replaced it")
    return None


def without_trial(site: Site, live: Plan) -> Plan:
    """Return the plan as it will be once a running trial is over."""
    trial = running(site, live)
    return live if trial is None else trial.taken_out_of(live)


def watch_trial(site: Site, *, who: str) -> str | None:
    """End a trial as soon as facts say so; None where there is nothing to end.

    What the engine refused to take back is left to ``keep_plan``.

    Raises:
        ActuatorError: the engine did not take the plan.
    """
    with site.store.reading() as session:
        trial = trials.open_on(session, site.engine)
    if trial is None or trial.refusal is not None or end_reason(site, trial) is None:
        return None
    with site.plan_lock:
        return end_trial(site, site.actuator.read_back(), who=who)


def end_trial(site: Site, live: Plan, *, who: str) -> str | None:
    """Take a trial back that has to end, and say so; None without one.

    What the engine refuses again for the same reason is said, not raised: it is on record.

    Raises:
        ActuatorError: the engine did not take the plan.
    """
    trial = running(site, live)
    reason = None if trial is None else end_reason(site, trial)
    return None if trial is None or reason is None else _take_back(site, live, trial, reason, who)


def end_trial_under(site: Site, said: Recommendation, *, who: str) -> None:
    """Take a trial back from where an operator decides about a recommendation.

    Raises:
        ActuatorError: the engine did not take the plan.
    """
    decided = {(said.route, one.load) for one in said.changes if one.proposed != one.current}
    with site.plan_lock:
        live = site.actuator.read_back()
        trial = running(site, live)
        if trial is not None and (trial.route, trial.load) in decided:
            _take_back(site, live, trial, "its place was decided about", who)


def _take_back(site: Site, live: Plan, trial: StoredTrial, reason: str, who: str) -> str:
    why = f"end of the {trial.name}: {reason}"
    plan = trial.taken_out_of(live)
    intent = Intent(plan=plan, before=live, recommendation=None, who=who, why=why)
    with site.store.writing() as session:
        change = begin(site, session, intent, again=trial.refused_change)
        trials.note_reason(session, trial, reason)
    try:
        reached = send(site, intent)
    except OutcomeUnknown:
        raise
    except ActuatorError as error:
        if _note_refusal(site, trial, change, error):
            raise
        return f"the {trial.name} is still in force: {error}"
    with site.store.writing() as session:
        succeed(site, session, change, reached, intent)
        trials.end(session, trial, site.clock(), reason)
    return why


def end_reason(site: Site, trial: StoredTrial) -> str | None:
    """Say why a trial has to end now; None while it may go on."""
    if site.clock() >= trial.end_s:
        return "its time is over"
    with site.store.reading() as session:
        tokens = trials.tokens_of(session, trial)
    if tokens >= trial.most_tokens:
        return f"its {trial.most_tokens} tokens are used up"
    return waiting_reason(site, trial.route) or _burn_reason(site, trial) or uncounted_reason(site)


def uncounted_reason(site: Site) -> str | None:
    """Say that the tokens of a trial cannot be counted now; None where they can."""
    silence = silence_reason(site)
    return None if silence is None else f"{silence}, so that its tokens are not counted"


def refusal_reason(site: Site, live: Plan, route: str, trial: Trial) -> str | None:
    """Say why a Setting is not to be tried, whatever tokens are left; None where it may."""
    label = trial.setting.label
    if live.setting_for(route, trial.load) == trial.setting:
        return f"{label} is in force on {route} at load {trial.load.label} already"
    flying = on_autopilot_reason(site, route)
    if flying is not None:
        return f"{route} is {flying}"
    waiting = waiting_reason(site, route)
    if waiting is not None:
        return f"{route} is {waiting} Nothing is tried until that is over or acknowledged"
    with site.store.reading() as session:
        tried = trials.since(session, site.engine, site.clock() - DAY_S)
    place = (route, trial.load, trial.setting)
    if any((one.route, one.load, one.setting) == place and _broke(one) for one in tried):
        return f"a trial of {label} on {route} broke its limits within the last day"
    return None


def _burn_reason(site: Site, trial: StoredTrial) -> str | None:
    limits = [route for route in site.settings.routes if route.name == trial.route]
    if not limits:
        return None
    with site.store.reading() as session:
        windows = observations.between(session, site.engine, trial.start_s, site.clock())
    within = [window for window in windows if window.start_s >= trial.start_s]
    seen = latencies(one for window in within for one in window.requests)
    latency = seen.get((trial.route, trial.load))
    burn_ratio = latency.burn_ratio(limits[0]) if latency else None
    if burn_ratio is None or burn_ratio <= RecommendOptions().max_burn_ratio:
        return None
    return f"{burn_ratio:.0%} {_BROKE}"


def _broke(trial: StoredTrial) -> bool:
    return trial.reason is not None and trial.reason.endswith(_BROKE)


def _note_refusal(site: Site, trial: StoredTrial, change: int, error: ActuatorError) -> bool:
    """Note that the engine did not take a trial back; return whether that is news."""
    with site.store.writing() as session:
        fail(session, change, error)
        return trials.note_refusal(session, trial, change, str(error).splitlines()[0])


def _close(site: Site, trial: StoredTrial, reason: str) -> None:
    with site.store.writing() as session:
        trials.end(session, trial, site.clock(), reason)
