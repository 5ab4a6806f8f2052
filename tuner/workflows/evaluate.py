"""Whether a Setting may be put into force: a divergence report and a replay, both fresh."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from collectors.records import OFF, Setting
from policy.types import Advice
from tuner.errors import NotEvaluated
from tuner.store import captures, divergences, envelopes, evaluations, recommendations, replays
from tuner.store.divergences import StoredDivergence
from tuner.store.evaluations import Evaluation
from tuner.store.recommendations import State, StoredRecommendation
from tuner.store.replays import ReplayState, StoredReplay
from tuner.workflows.divergence import DivergenceOptions, divergence
from tuner.workflows.replay import ReplayOptions, pin, replay
from tuner.workflows.site import Site

FRESH = timedelta(days=1)
MIN_PAIRS = 5
"""Replayed pairs below which an evaluation is inconclusive, hence not passing."""


def evaluate(site: Site, setting: Setting) -> Evaluation:
    """Give a verdict on a Setting, from fresh evidence or from evidence made now; store it.

    Passing means: greedy outputs diverge no more than the control arm's, and the replay does not
    show the Setting to be slower than speculation off.

    Raises:
        NothingToDo: no captured request is there.
        BadRequest: the engine cannot run the Setting.
        SourceUnreachable: the engine does not answer.
    """
    (digest,) = pin(site, (setting,))
    report = _fresh_divergence(site, digest)
    if report is None:
        options = DivergenceOptions(requests=site.settings.replay_requests)
        number = divergence(site, setting, options).id
        with site.store.reading() as session:
            report = divergences.one(session, number)
    run = _fresh_replay(site, digest)
    if run is None:
        number = replay(
            site, OFF, setting, ReplayOptions(requests=site.settings.replay_requests)
        ).id
        with site.store.reading() as session:
            run = replays.one(session, number)
    return _store(site, verdict_on(site, digest, report, run))


def evaluate_pending(site: Site) -> str:
    """Evaluate what a pending recommendation proposes or an envelope allows and nobody has."""
    if not site.settings.require_evaluation:
        return "evaluation is not required"
    with site.store.reading() as session:
        pending = recommendations.listed(
            session, engine=site.engine, states=(State.PENDING, State.HELD)
        )
    wanted = {
        setting
        for stored in pending
        for setting in proposed_settings(stored)
        if missing_reason(site, setting) is not None
    }
    wanted |= {arm for arm in _arms_in_envelopes(site) if missing_reason(site, arm) is not None}
    verdicts = [evaluate(site, setting) for setting in sorted(wanted, key=lambda one: one.label)]
    passing = sum(verdict.is_passing for verdict in verdicts)
    return f"evaluated {len(verdicts)} Settings, {passing} passing"


def require_evaluations(site: Site, stored: StoredRecommendation) -> None:
    """Refuse a recommendation whose Settings lack what the operator asks for.

    Raises:
        NotEvaluated: the message names each Setting and what is missing.
    """
    if not site.settings.require_evaluation:
        return
    reasons = [missing_reason(site, setting) for setting in proposed_settings(stored)]
    missing = [reason for reason in reasons if reason is not None]
    if missing:
        raise NotEvaluated(
            f"recommendation {stored.id} is not evaluated: {'; '.join(missing)}. The evaluation "
            "runs by itself while the service is up; or run `spectuner divergence` and "
            "`spectuner replay`"
        )


def missing_reason(site: Site, setting: Setting) -> str | None:
    """Return why a Setting may not be put into force yet; None where it may. Off always may."""
    if setting == OFF:
        return None
    (digest,) = pin(site, (setting,))
    with site.store.reading() as session:
        latest = evaluations.latest(session, digest)
    if latest is None:
        return f"{setting.label} has no evaluation on this engine's configuration"
    if site.now() - latest.at > FRESH:
        return f"the evaluation of {setting.label} is older than {FRESH.days} day"
    if not latest.is_passing:
        return f"{setting.label} did not pass: {'; '.join(latest.reasons)}"
    return None


def proposed_settings(stored: StoredRecommendation) -> tuple[Setting, ...]:
    """Return the Settings a recommendation would put into force, off left out."""
    if stored.said.advice is not Advice.CHANGE:
        return ()
    proposed = {
        change.proposed for change in stored.said.changes if change.proposed != change.current
    }
    return tuple(sorted(proposed - {OFF}, key=lambda setting: setting.label))


def verdict_on(site: Site, digest: str, report: StoredDivergence, run: StoredReplay) -> Evaluation:
    """Judge the evidence on one pinned configuration."""
    speedup = run.summary.speedup
    objections = []
    if not report.summary.is_passing:
        objections.append(report.summary.verdict)
    if run.summary.pairs < MIN_PAIRS or speedup is None:
        objections.append(
            f"the replay has {run.summary.pairs} pairs that count, {MIN_PAIRS} are needed"
        )
    elif speedup.high < 1.0:
        objections.append(f"the replay shows it slower than off ({speedup.mean:.2f}x)")
    praise = (report.summary.verdict, f"replayed {run.summary.pairs} pairs")
    return Evaluation(
        digest=digest,
        at=site.now(),
        is_passing=not objections,
        reasons=tuple(objections) or praise,
        divergence=report.id,
        replay=run.id,
    )


def _arms_in_envelopes(site: Site) -> set[Setting]:
    """Return the arms that the control loop could use on a route if they had passed."""
    with site.store.reading() as session:
        stored = envelopes.current(session, site.engine)
    flying = [one.envelope for one in stored if one.is_on_autopilot]
    return {arm for one in flying for arm in one.within(site.possible_arms())} - {OFF}


def _store(site: Site, evaluation: Evaluation) -> Evaluation:
    with site.store.writing() as session:
        evaluations.add(session, evaluation)
    return evaluation


def _fresh_divergence(site: Site, digest: str) -> StoredDivergence | None:
    """Return the newest report; an inconclusive one only while no more prompts are captured."""
    with site.store.reading() as session:
        found = divergences.listed(session, tested=digest, limit=1)
    if not found or site.now() - found[0].at > FRESH:
        return None
    summary = found[0].summary
    is_final = summary.diverges is not None or summary.tested.pairs >= _possible_pairs(site)
    return found[0] if is_final else None


def _fresh_replay(site: Site, digest: str) -> StoredReplay | None:
    """Return the newest finished replay of a configuration against speculation off.

    One with too few pairs counts only while no more requests are captured.
    """
    (off,) = pin(site, (OFF,))
    with site.store.reading() as session:
        found: Sequence[StoredReplay] = replays.listed(session, other=digest, limit=20)
    fresh = [
        run
        for run in found
        if run.state is ReplayState.DONE
        and run.base == off
        and site.now() - run.started_at <= FRESH
        and run.summary.pairs + run.summary.void_pairs >= min(MIN_PAIRS, _possible_pairs(site))
    ]
    return fresh[0] if fresh else None


def _possible_pairs(site: Site) -> int:
    """Return how many pairs a replay or a report made now would have."""
    with site.store.reading() as session:
        held = sum(captures.count_by_route(session, site.engine).values())
    return min(held, site.settings.replay_requests)
