"""What runs when: the whole timetable, on one page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import time
from zoneinfo import ZoneInfo

from tuner.jobs.due import Daily, Every, Schedule
from tuner.settings import Settings
from tuner.workflows.autopilot import autopilot
from tuner.workflows.capture import capture
from tuner.workflows.drift import watch_drift
from tuner.workflows.explore import explore
from tuner.workflows.gate import evaluate_pending, run_asked
from tuner.workflows.ingest import ingest, sample_devices
from tuner.workflows.keep import keep_plan
from tuner.workflows.observe import close_windows
from tuner.workflows.recommend import recommend
from tuner.workflows.retain import retain
from tuner.workflows.rounds import divergence_round, replay_round
from tuner.workflows.site import Site
from tuner.workflows.trial import watch_trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One line of the timetable.

    Attributes:
        name: unique; the label of its runs.
        schedule: when it is due.
        does: what it does, one line.
        run: the workflow; what it returns is noted as text.
    """

    name: str
    schedule: Schedule
    does: str
    run: Callable[[Site], object]


def timetable(settings: Settings) -> tuple[Job, ...]:
    """Return every job."""
    return (*_reading_jobs(settings), *_deciding_jobs(settings), *_proving_jobs(settings))


def _reading_jobs(settings: Settings) -> tuple[Job, ...]:
    return (
        Job(
            name="ingest",
            schedule=Every(seconds=settings.ingest_interval_s),
            does="pull the engine's journal, end a live trial that used up its tokens or time",
            run=_ingest,
        ),
        Job(
            name="sample_devices",
            schedule=Every(seconds=max(5.0, settings.ingest_interval_s)),
            does="note the load of engine and devices",
            run=sample_devices,
        ),
        Job(
            name="capture",
            schedule=Every(seconds=max(2.0, settings.ingest_interval_s)),
            does="pull captured requests, redacted, score lookups on them, delete old ones",
            run=capture,
        ),
        Job(
            name="retain",
            schedule=Daily(at=time(3, 30), zone=ZoneInfo(settings.timezone)),
            does="delete old facts, samples and runs, and what nobody needs any more",
            run=retain,
        ),
    )


def _deciding_jobs(settings: Settings) -> tuple[Job, ...]:
    return (
        Job(
            name="observe",
            schedule=Every(seconds=settings.observe_interval_s),
            does="fold facts into windows",
            run=_close_windows,
        ),
        Job(
            name="watch_drift",
            schedule=Every(seconds=settings.observe_interval_s),
            does="look for drift in closed windows, note what the engine is made of",
            run=watch_drift,
        ),
        Job(
            name="recommend",
            schedule=Every(seconds=settings.recommend_interval_s),
            does="ask the policy and store what it says",
            run=recommend,
        ),
        Job(
            name="explore",
            schedule=Every(seconds=settings.window_s, is_punctual=True),
            does="draw what is tried on live traffic in a window, where the settings allow it",
            run=explore,
        ),
        Job(
            name="autopilot",
            schedule=Every(seconds=settings.autopilot_interval_s),
            does="let the control loop act on routes with an envelope, or fall back",
            run=autopilot,
        ),
        Job(
            name="keep_plan",
            schedule=Every(seconds=10.0),
            does="restore the plan of an engine that restarted, settle lost answers, end trials",
            run=keep_plan,
        ),
    )


def _proving_jobs(settings: Settings) -> tuple[Job, ...]:
    return (
        Job(
            name="replay",
            schedule=Every(seconds=settings.replay_interval_s),
            does="replay captured requests at a Setting that wants evidence",
            run=replay_round,
        ),
        Job(
            name="divergence",
            schedule=Every(seconds=settings.divergence_interval_s),
            does="compare greedy outputs of the live Settings with plain decoding",
            run=divergence_round,
        ),
        Job(
            name="evaluate",
            schedule=Every(seconds=settings.recommend_interval_s),
            does="evaluate Settings that a pending recommendation proposes, each on its route",
            run=evaluate_pending,
        ),
        Job(
            name="gate",
            schedule=Every(seconds=max(2.0, settings.ingest_interval_s)),
            does="run evaluations that somebody asked for",
            run=run_asked,
        ),
    )


def _ingest(site: Site) -> str:
    pulled = ingest(site)
    ended = watch_trial(site, who="ingest")
    return f"{pulled}; {ended}" if ended else str(pulled)


def _close_windows(site: Site) -> str:
    return f"closed {close_windows(site)} windows"
