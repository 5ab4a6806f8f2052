"""Whether a Setting may be put into force on a route: outputs and speed there, both fresh.

What other routes showed does not count. Speed counts at the load level that was replayed; at other
levels only the outputs do, and the speed rests on the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from collectors.records import OFF, LoadLevel, Setting, load_level_of
from policy.gate import gate_verdict, unmeasured_loads
from policy.types import Advice
from tuner.errors import NotEvaluated, NothingToDo
from tuner.store import captures, evaluations, recommendations, route_proofs
from tuner.store.evaluations import Evaluation
from tuner.store.recommendations import State, StoredRecommendation
from tuner.store.route_proofs import ProvedOutputs, ProvedSpeed
from tuner.workflows.divergence import DivergenceOptions, divergence
from tuner.workflows.replay import ReplayOptions, pin, replay
from tuner.workflows.site import Site

FRESH = timedelta(days=1)
MEASURED = load_level_of(1)
"""Load level at which the gate replays: one request at once, which any engine has room for."""

Progress = Callable[[str, int, int], None]


def evaluate(
    site: Site,
    setting: Setting,
    route: str,
    *,
    on_progress: Progress = lambda phase, done, total: None,
) -> Evaluation:
    """Give a verdict on a Setting for a route, from fresh evidence or from evidence made now.

    Passing means: greedy outputs diverge no more than the control arm's, and the route's pairs do
    not show the Setting to be slower than speculation off, at the precision asked for.

    Args:
        site: the engine and its store.
        setting: the Setting.
        route: the route whose captured requests count.
        on_progress: called with ``outputs`` or ``speed``, what is done of it, and all of it.

    Raises:
        NothingToDo: no captured request of the route with a decode pass is there.
        BadRequest: the engine cannot run the Setting.
        SourceUnreachable: the engine does not answer.
    """
    off, digest = pin(site, (OFF, setting))
    outputs = _fresh_outputs(site, digest, route) or _made_outputs(
        site, setting, digest, route, on_progress
    )
    speed = _fresh_speed(site, off, digest, route) or _made_speed(
        site, setting, (off, digest), route, on_progress
    )
    verdict = gate_verdict(
        outputs_pass=outputs is not None and outputs.summary.is_passing,
        outputs_sentence=_sentence(outputs),
        speed=None if speed is None else speed.speed,
    )
    found = Evaluation(
        digest=digest,
        at=site.now(),
        is_passing=verdict.is_passing,
        outputs_pass=verdict.outputs_pass,
        reasons=verdict.reasons,
        divergence=None if outputs is None else outputs.divergence,
        replay=None if speed is None else speed.replay,
        route=route,
        load=None if speed is None else speed.speed.load.label,
    )
    with site.store.writing() as session:
        return replace(found, id=evaluations.add(session, found))


def missing_evaluations(site: Site) -> tuple[tuple[str, Setting], ...]:
    """Return the routes and Settings that pending recommendations propose and nobody passed."""
    with site.store.reading() as session:
        pending = recommendations.listed(
            session, engine=site.engine, states=(State.PENDING, State.HELD)
        )
    wanted = {
        (stored.route, setting)
        for stored in pending
        for setting in proposed_settings(stored)
        if missing_reason(site, setting, stored.route, proposed_loads(stored, setting)) is not None
    }
    return tuple(sorted(wanted, key=lambda one: (one[0], one[1].label)))


def can_tell_more(site: Site, setting: Setting, route: str) -> bool:
    """Return whether an evaluation made now would stand on other evidence than the newest one."""
    off, digest = pin(site, (OFF, setting))
    with site.store.reading() as session:
        latest = evaluations.latest(session, digest, route)
        held = captures.count_by_route(session, site.engine, is_decoding=True)
    if not held.get(route):
        return False
    if latest is None or site.now() - latest.at > FRESH:
        return True
    outputs = _fresh_outputs(site, digest, route)
    speed = _fresh_speed(site, off, digest, route)
    if outputs is None or speed is None:
        return True
    return (outputs.divergence, speed.replay) != (latest.divergence, latest.replay)


def require_evaluations(site: Site, stored: StoredRecommendation) -> None:
    """Refuse a recommendation whose Settings lack what the operator asks for, on its route.

    Raises:
        NotEvaluated: the message names each Setting and what is missing.
    """
    if not site.settings.require_evaluation:
        return
    reasons = [
        missing_reason(site, setting, stored.route, proposed_loads(stored, setting))
        for setting in proposed_settings(stored)
    ]
    missing = [reason for reason in reasons if reason is not None]
    if missing:
        raise NotEvaluated(
            f"recommendation {stored.id} is not evaluated: {'; '.join(missing)}. The evaluation "
            "runs by itself while the service is up, or at once by Run now on the page of the "
            "recommendation"
        )


def missing_reason(
    site: Site, setting: Setting, route: str, loads: tuple[LoadLevel, ...]
) -> str | None:
    """Return why a Setting may not be put into force on a route; None where it may.

    Off always may. Where none of the load levels was replayed, the outputs alone must pass.
    """
    if setting == OFF:
        return None
    (digest,) = pin(site, (setting,))
    with site.store.reading() as session:
        latest = evaluations.latest(session, digest, route)
    named = f"{setting.label} on {route}"
    if latest is None:
        return f"{named} has no evaluation on this engine's configuration"
    if site.now() - latest.at > FRESH:
        return f"the evaluation of {named} is older than {FRESH.days} day"
    if not is_let_through(latest, loads):
        return f"{named} did not pass: {'; '.join(latest.reasons)}"
    return None


def is_let_through(verdict: Evaluation, loads: tuple[LoadLevel, ...]) -> bool:
    """Return whether a verdict lets its Setting into force at load levels of its route."""
    is_measured = any(load.label == (verdict.load or MEASURED.label) for load in loads)
    return verdict.is_passing if is_measured else verdict.outputs_pass


def unmeasured_note(loads: tuple[LoadLevel, ...], verdict: Evaluation) -> str | None:
    """Return at which load levels speed was not replayed; None where it was at all of them."""
    measured = next((load for load in loads if load.label == verdict.load), None)
    others = unmeasured_loads(loads, measured)
    if not others:
        return None
    labels = ", ".join(load.label for load in others)
    return (
        f"speed at load {labels} was not replayed (pairs ran at load "
        f"{verdict.load or MEASURED.label}): there the gate compares outputs only, and the speed "
        "rests on the model"
    )


def proposed_settings(stored: StoredRecommendation) -> tuple[Setting, ...]:
    """Return the Settings a recommendation would put into force, off left out."""
    if stored.said.advice is not Advice.CHANGE:
        return ()
    proposed = {
        change.proposed for change in stored.said.changes if change.proposed != change.current
    }
    return tuple(sorted(proposed - {OFF}, key=lambda setting: setting.label))


def proposed_loads(stored: StoredRecommendation, setting: Setting) -> tuple[LoadLevel, ...]:
    """Return the load levels at which a recommendation would put a Setting into force."""
    return tuple(
        change.load
        for change in stored.said.changes
        if change.proposed == setting != change.current
    )


def _sentence(outputs: ProvedOutputs | None) -> str:
    return "no output was compared" if outputs is None else outputs.summary.verdict


def _made_outputs(
    site: Site, setting: Setting, digest: str, route: str, on_progress: Progress
) -> ProvedOutputs | None:
    options = DivergenceOptions(route=route, requests=site.settings.replay_requests)
    divergence(
        site,
        setting,
        options,
        on_answer=lambda done, total: on_progress("outputs", done, total),
    )
    with site.store.reading() as session:
        return route_proofs.newest_outputs(
            session, tested=digest, route=route, since=site.now() - FRESH
        )


def _made_speed(
    site: Site,
    setting: Setting,
    digests: tuple[str, str],
    route: str,
    on_progress: Progress,
) -> ProvedSpeed | None:
    replay(
        site,
        OFF,
        setting,
        gate_options(site, route),
        on_pair=lambda done, total: on_progress("speed", done, total),
    )
    return _newest_speed(site, *digests, route)


def gate_options(site: Site, route: str | None) -> ReplayOptions:
    """Return how the gate replays: to a stated precision, within a budget."""
    settings = site.settings
    return ReplayOptions(
        route=route,
        requests=settings.gate_requests,
        precision=settings.gate_precision,
        budget_tokens=settings.gate_tokens,
        budget_s=settings.gate_time_s,
    )


def _fresh_outputs(site: Site, digest: str, route: str) -> ProvedOutputs | None:
    """Return the newest report; an inconclusive one only while no more prompts are captured."""
    with site.store.reading() as session:
        found = route_proofs.newest_outputs(
            session, tested=digest, route=route, since=site.now() - FRESH
        )
    if found is None:
        return None
    possible = min(_held(site, route), site.settings.replay_requests)
    is_final = found.summary.diverges is not None or found.summary.tested.pairs >= possible
    return found if is_final else None


def _fresh_speed(site: Site, off: str, digest: str, route: str) -> ProvedSpeed | None:
    """Return the newest pairs; too few of them count only while no more requests are captured."""
    found = _newest_speed(site, off, digest, route)
    if found is None:
        return None
    possible = min(_held(site, route), site.settings.gate_requests, found.speed.needed_pairs)
    is_final = found.speed.time_ratio is not None or found.speed.pairs >= possible
    return found if is_final else None


def _newest_speed(site: Site, off: str, digest: str, route: str) -> ProvedSpeed | None:
    with site.store.reading() as session:
        found = route_proofs.newest_speeds(
            session, base=off, other=digest, route=route, since=site.now() - FRESH
        )
    return next((one for one in found if one.speed.load == MEASURED), None)


def _held(site: Site, route: str) -> int:
    """Return how many captured requests of a route a replay could use."""
    with site.store.reading() as session:
        held = captures.count_by_route(session, site.engine, is_decoding=True)
    if not held.get(route):
        raise NothingToDo(f"no request of route {route} with a decode pass is captured")
    return held[route]
