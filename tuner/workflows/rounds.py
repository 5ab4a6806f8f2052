"""What the proving jobs pick next: the Setting whose evidence is missing, else the oldest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from collectors.records import OFF, Setting
from policy.types import Evidence
from tuner.store import captures, divergences, recommendations, replays
from tuner.store.recommendations import State
from tuner.workflows.divergence import DivergenceOptions, divergence
from tuner.workflows.evaluate import gate_options, proposed_settings
from tuner.workflows.replay import replay
from tuner.workflows.site import Site

NEVER = datetime.min.replace(tzinfo=UTC)


def replay_round(site: Site) -> str:
    """Replay captured requests with speculation off and at the arm that wants evidence most.

    What open recommendations would try by a replay comes first, each once on its route; then the
    arm that was replayed least lately, on all routes.

    Raises:
        SourceUnreachable: the engine does not answer.
    """
    reason = _nothing_reason(site)
    if reason is not None:
        return reason
    wanted = _wanted(site)
    route, arm = wanted or (None, _oldest(_last_replayed(site, _speculating_arms(site))))
    if arm is None:
        return "no arm of the settings speculates on this engine"
    options = replace(gate_options(site, route), requests=site.settings.replay_requests)
    done = replay(site, OFF, arm, options)
    place = "" if route is None else f" on {route}"
    shown = "; ".join(speed.sentence for speed in done.speeds)
    return f"replay {done.id}: {arm.label}{place}: {shown}"


def _wanted(site: Site) -> tuple[str, Setting] | None:
    """Return the most promising trial that a replay can make and none has made; None without."""
    possible, capabilities = site.possible_arms(), site.collector.capabilities()
    with site.store.reading() as session:
        held = captures.count_by_route(session, site.engine, is_decoding=True)
        pending = recommendations.listed(session, engine=site.engine, states=(State.PENDING,))
        trials = [
            (trial.most_gain or 0.0, stored.route, trial.setting)
            for stored in pending
            for trial in stored.said.trials
            if trial.by is Evidence.REPLAY and trial.setting in possible and stored.route in held
        ]
        for _, route, setting in sorted(trials, key=lambda found: -found[0]):
            done = replays.listed(session, other=capabilities.pinned_at(setting).digest)
            if not any(run.route in (None, route) for run in done):
                return route, setting
    return None


def divergence_round(site: Site) -> str:
    """Report on a live or proposed Setting, else on an arm; the one reported least lately.

    Raises:
        SourceUnreachable: the engine does not answer.
    """
    reason = _nothing_reason(site)
    if reason is not None:
        return reason
    candidates = _live_or_proposed(site) or _speculating_arms(site)
    setting = _oldest(_last_reported(site, candidates))
    if setting is None:
        return "no Setting in use speculates on this engine"
    done = divergence(site, setting, DivergenceOptions(requests=site.settings.replay_requests))
    return f"report {done.id} on {setting.label}: {done.summary.verdict}"


def _nothing_reason(site: Site) -> str | None:
    with site.store.reading() as session:
        held = captures.count_by_route(session, site.engine, is_decoding=True)
    if held:
        return None
    if not site.settings.capture_enabled:
        return "capture is off; set SPECTUNER_CAPTURE_ENABLED=true to replay requests"
    return "no request with a decode pass is captured yet"


def _speculating_arms(site: Site) -> tuple[Setting, ...]:
    return tuple(arm for arm in site.possible_arms() if arm != OFF)


def _live_or_proposed(site: Site) -> tuple[Setting, ...]:
    plan = site.actuator.read_back()
    live = [plan.default, *(entry.setting for entry in plan.entries)]
    with site.store.reading() as session:
        pending = recommendations.listed(session, engine=site.engine, states=(State.PENDING,))
    proposed = [setting for stored in pending for setting in proposed_settings(stored)]
    return tuple(setting for setting in dict.fromkeys((*live, *proposed)) if setting != OFF)


def _last_replayed(site: Site, arms: Sequence[Setting]) -> list[tuple[datetime, Setting]]:
    capabilities = site.collector.capabilities()
    with site.store.reading() as session:
        return [(_replayed_at(session, capabilities.pinned_at(arm).digest), arm) for arm in arms]


def _last_reported(site: Site, arms: Sequence[Setting]) -> list[tuple[datetime, Setting]]:
    capabilities = site.collector.capabilities()
    with site.store.reading() as session:
        return [(_reported_at(session, capabilities.pinned_at(arm).digest), arm) for arm in arms]


def _replayed_at(session: Session, digest: str) -> datetime:
    found = replays.listed(session, other=digest, limit=1)
    return found[0].started_at if found else NEVER


def _reported_at(session: Session, digest: str) -> datetime:
    found = divergences.listed(session, tested=digest, limit=1)
    return found[0].at if found else NEVER


def _oldest(dated: Iterable[tuple[datetime, Setting]]) -> Setting | None:
    """Return the Setting with the oldest date; the first one of several."""
    return min(dated, key=lambda pair: pair[0], default=(NEVER, None))[1]
