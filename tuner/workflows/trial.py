"""Live trials: a Setting on one route and load level for as long as its share of tokens allows.

Only what the newest recommendation proposes is tried: replays came before, and no route that
breaks its limits is among it. The start and the end are plan changes on record; ``keep_plan`` ends
a trial that is over, so a service that restarts in the middle ends it too, and one under which the
route breaks its limits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from collectors.records import LoadLevel, Plan, PlanEntry, load_level_named
from policy.knowledge import latencies
from policy.options import RecommendOptions
from policy.types import Evidence, Recommendation, Trial, Window
from tuner.errors import BadRequest, StateChanged
from tuner.store import facts, observations, plans, recommendations
from tuner.store.plans import Outcome, PlanChange
from tuner.store.recommendations import State
from tuner.workflows.apply import Intent, apply
from tuner.workflows.site import Site

WHO = "explore"
DAY_S = 86_400.0
LONGEST_S = 600.0
CHANGES_READ = 500
"""Changes of the plan that are looked at: more than a day of trials makes."""

_STARTED = re.compile(r"trial of .+ on (?P<route>\S+) at load (?P<load>\S+) until (?P<end>\d+)")
_BROKE = "of its requests broke its limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTrial:
    """A trial that was started.

    Attributes:
        entry: what is on trial.
        start_s: when it began, Unix seconds.
        end_s: when it is over, Unix seconds.
        before: plan in force before it.
    """

    entry: PlanEntry
    start_s: float
    end_s: float
    before: Plan


def start(site: Site, route: str, trial: Trial, *, who: str) -> RunningTrial:
    """Put a proposed Setting into force for as long as its share of the route's tokens lasts.

    Raises:
        StateChanged: another trial is running.
        BadRequest: the Setting is in force there, a trial there broke the route's limits today, or
            the route's share of tokens is used up or too small for a window.
        ActuatorError: the engine did not take the plan; the one before is in force.
    """
    live, now_s = site.actuator.read_back(), site.clock()
    if running(site, live) is not None:
        raise StateChanged("another trial is running; one at a time tells what it did")
    entry = PlanEntry(route=route, load=trial.load, setting=trial.setting)
    reason = _refusal(site, live, entry, now_s)
    if reason is not None:
        raise BadRequest(reason)
    seconds = _affordable_s(site, route, trial, now_s)
    if seconds < site.settings.window_s:
        raise BadRequest(
            f"{trial.most_token_share:.0%} of the tokens of {route} last {seconds:.0f} s, less "
            f"than a window of {site.settings.window_s:.0f} s; it needs more traffic first"
        )
    end_s = int(now_s + seconds)
    why = f"trial of {trial.setting.label} on {route} at load {trial.load.label} until {end_s}"
    plan = _with_entry(live, entry)
    apply(site, Intent(plan=plan, before=live, recommendation=None, who=who, why=why))
    return RunningTrial(entry=entry, start_s=now_s, end_s=float(end_s), before=live)


def explore(site: Site, who: str = WHO) -> str:
    """Start the most promising live trial that its share of tokens allows, where settings do.

    Raises:
        ActuatorError: the engine did not take the plan.
    """
    if not site.settings.explore_live:
        return "live trials are off; SPECTUNER_EXPLORE_LIVE=true lets the service make them"
    current = running(site, site.actuator.read_back())
    if current is not None:
        return f"{current.entry.setting.label} is on trial on {current.entry.route}"
    with site.store.reading() as session:
        pending = recommendations.listed(session, engine=site.engine, states=(State.PENDING,))
    wanted = [(trial, one.route) for one in pending for trial in live_trials(one.said)]
    for trial, route in sorted(wanted, key=lambda pair: -(pair[0].most_gain or 0.0)):
        try:
            begun = start(site, route, trial, who=who)
        except BadRequest:
            continue
        return f"{trial.setting.label} on trial on {route} for {begun.end_s - begun.start_s:.0f} s"
    return "no live trial is proposed that its share of tokens allows"


def live_trials(said: Recommendation) -> tuple[Trial, ...]:
    """Return what a recommendation would try on live traffic."""
    return tuple(trial for trial in said.trials if trial.by is Evidence.LIVE)


def running(site: Site, live: Plan) -> RunningTrial | None:
    """Return the trial whose Setting is in force, over or not; None without one.

    A Setting that was taken back since and came into force anew is no trial: somebody approved it.
    """
    applied = _applied(site)
    read = ((place, found) for place, one in enumerate(applied) if (found := _read(one)))
    age, newest = next(read, (0, None))
    if newest is None:
        return None
    entry = newest.entry
    since = (live, *(change.plan for change in applied[:age]))
    is_live = all(plan.setting_for(entry.route, entry.load) == entry.setting for plan in since)
    return newest if is_live else None


def without_trial(site: Site, live: Plan) -> Plan:
    """Return the plan as it will be once a running trial is over."""
    trial = running(site, live)
    return live if trial is None else _restored(live, trial)


def end_trial(site: Site, live: Plan, *, who: str) -> str | None:
    """Take a trial back that is over or breaks the route's limits, and say so; None without one.

    Raises:
        ActuatorError: the engine did not take the plan.
    """
    trial = running(site, live)
    reason = None if trial is None else _end_reason(site, trial)
    if trial is None or reason is None:
        return None
    why = f"{_ending_of(trial.entry)}: {reason}"
    plan = _restored(live, trial)
    apply(site, Intent(plan=plan, before=live, recommendation=None, who=who, why=why))
    return why


def _end_reason(site: Site, trial: RunningTrial) -> str | None:
    """Say why a trial has to end now; None while it may go on."""
    now_s, entry = site.clock(), trial.entry
    if now_s >= trial.end_s:
        return "its time is over"
    limits = [route for route in site.settings.routes if route.name == entry.route]
    with site.store.reading() as session:
        windows = observations.between(session, site.engine, trial.start_s, now_s)
    within = [window for window in windows if window.start_s >= trial.start_s]
    seen = latencies(one for window in within for one in window.requests)
    latency = seen.get((entry.route, entry.load))
    burn_ratio = latency.burn_ratio(limits[0]) if latency and limits else None
    if burn_ratio is None or burn_ratio <= RecommendOptions().max_burn_ratio:
        return None
    return f"{burn_ratio:.0%} {_BROKE}"


def _ending_of(entry: PlanEntry) -> str:
    return f"end of the trial of {entry.setting.label} on {entry.route} at load {entry.load.label}"


def _refusal(site: Site, live: Plan, entry: PlanEntry, now_s: float) -> str | None:
    """Say why an entry is not to be tried, whatever share of tokens is left; None where it may."""
    label, route = entry.setting.label, entry.route
    if live.setting_for(route, entry.load) == entry.setting:
        return f"{label} is in force on {route} at load {entry.load.label} already"
    ending = _ending_of(entry)
    for change in _applied(site):
        is_late = change.at.timestamp() >= now_s - DAY_S
        if is_late and change.why.startswith(ending) and change.why.endswith(_BROKE):
            return f"a trial of {label} on {route} broke its limits within the last day"
    return None


def _applied(site: Site) -> tuple[PlanChange, ...]:
    """Return the changes of the plan that took effect, newest first."""
    with site.store.reading() as session:
        return plans.listed(session, site.engine, outcome=Outcome.APPLIED, limit=CHANGES_READ)


def _restored(live: Plan, trial: RunningTrial) -> Plan:
    entry = trial.entry
    former = trial.before.setting_for(entry.route, entry.load)
    return _with_entry(live, PlanEntry(route=entry.route, load=entry.load, setting=former))


def _with_entry(plan: Plan, entry: PlanEntry) -> Plan:
    place = (entry.route, entry.load)
    kept = tuple(one for one in plan.entries if (one.route, one.load) != place)
    is_default = entry.setting == plan.default
    entries = kept if is_default else (*kept, entry)
    return Plan(version=plan.version + 1, default=plan.default, entries=entries)


def _affordable_s(site: Site, route: str, trial: Trial, now_s: float) -> float:
    """Return for how long a trial may run, given the day's tokens and the day's trials."""
    with site.store.reading() as session:
        windows = observations.between(session, site.engine, now_s - DAY_S, now_s)
        first_s = facts.first_at_s(session, site.engine, now_s - DAY_S)
    if first_s is None:
        return 0.0
    span_s = max(now_s - first_s, site.settings.window_s)
    total, at_load = _tokens(windows, route, None), _tokens(windows, route, trial.load)
    spent_s = sum(
        one.end_s - one.start_s
        for one in filter(None, map(_read, _applied(site)))
        if one.entry.route == route and one.start_s >= now_s - DAY_S
    )
    if not at_load:
        return 0.0
    return min(LONGEST_S, trial.most_token_share * span_s * total / at_load - spent_s)


def _tokens(windows: Sequence[Window], route: str, load: LoadLevel | None) -> int:
    return sum(
        seen.tokens
        for window in windows
        for seen in window.observations
        if seen.evidence is Evidence.LIVE and seen.route == route and load in (None, seen.load)
    )


def _read(change: PlanChange) -> RunningTrial | None:
    """Read a trial off its record; None for any other change."""
    found = _STARTED.fullmatch(change.why)
    if found is None or change.recommendation is not None:
        return None
    place = (found["route"], load_level_named(found["load"]))
    setting = change.plan.setting_for(*place)
    return RunningTrial(
        entry=PlanEntry(route=place[0], load=place[1], setting=setting),
        start_s=change.at.timestamp(),
        end_s=float(found["end"]),
        before=change.before,
    )
