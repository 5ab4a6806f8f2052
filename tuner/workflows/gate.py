"""Evaluations of one Setting on one route: asked for by a person or due by themselves, run here.

One is open a route and Setting at most, whoever asks, so that asking again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from collectors.records import Setting
from tuner.errors import Interrupted, NothingToDo, TunerError
from tuner.store import gate_runs, pinned
from tuner.store.evaluations import Evaluation
from tuner.store.gate_runs import SERVICE, GateRun
from tuner.workflows.evaluate import can_tell_more, evaluate, missing_evaluations
from tuner.workflows.replay import pin
from tuner.workflows.site import Site

SILENT = timedelta(minutes=30)
"""Time without progress after which an evaluation's service is taken for gone."""


def ask_gate(site: Site, setting: Setting, route: str, *, who: str) -> bool:
    """Ask for an evaluation of a Setting on a route; the job ``gate`` runs it.

    Returns:
        False where one is open already.

    Raises:
        BadRequest: the engine cannot run the Setting.
        SourceUnreachable: the engine does not answer.
    """
    (digest,) = pin(site, (setting,))
    with site.store.writing() as session:
        return gate_runs.ask(
            session, engine=site.engine, route=route, digest=digest, who=who, at=site.now()
        )


def run_asked(site: Site) -> str:
    """Run the evaluations that were asked for, oldest first."""
    with site.store.writing() as session:
        gate_runs.fail_silent(session, site.now() - SILENT, site.now())
    with site.store.reading() as session:
        asked = gate_runs.asked(session, site.engine)
    notes = [_run(site, one) for one in asked]
    return "; ".join(notes) if notes else "nothing was asked for"


def evaluate_pending(site: Site) -> str:
    """Ask for what pending recommendations propose and nobody has passed, and run it."""
    if not site.settings.require_evaluation:
        return "evaluation is not required"
    waiting = []
    for route, setting in missing_evaluations(site):
        if can_tell_more(site, setting, route):
            ask_gate(site, setting, route, who=SERVICE)
        else:
            waiting.append(f"{setting.label} on {route} waits for more captured requests")
    return "; ".join((*waiting, run_asked(site)))


def _run(site: Site, asked: GateRun) -> str:
    """Run one evaluation and note how it ended; what failed for lack of requests is no fault."""
    with site.store.writing() as session:
        if not gate_runs.begin(session, asked.id, site.now()):
            return f"{asked.route}: another service was first"
        setting = pinned.one(session, asked.digest).setting
    named = f"{setting.label} on {asked.route}"
    try:
        found = evaluate(site, setting, asked.route, on_progress=_progress(site, asked.id))
    except NothingToDo as reason:
        _finish(site, asked.id, error=str(reason))
        return f"{named}: {reason}"
    except (TunerError, Interrupted) as error:
        _finish(site, asked.id, error=str(error))
        raise
    _finish(site, asked.id, found=found)
    return f"{named} {'passed' if found.is_passing else 'did not pass'}"


def _progress(site: Site, number: int) -> Callable[[str, int, int], None]:
    def note(phase: str, done: int, total: int) -> None:
        with site.store.writing() as session:
            gate_runs.note_progress(
                session, number, phase=phase, done=done, total=total, at=site.now()
            )

    return note


def _finish(
    site: Site, number: int, *, found: Evaluation | None = None, error: str | None = None
) -> None:
    with site.store.writing() as session:
        gate_runs.finish(
            session,
            number,
            at=site.now(),
            evaluation=found.id if found is not None else None,
            error=error,
        )
