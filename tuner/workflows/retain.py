"""Delete what is old: facts that windows were made of, samples, runs, alarms, decisions."""

from __future__ import annotations

from datetime import timedelta

from tuner.store import (
    counterfactuals,
    decisions,
    drift,
    facts,
    jobs,
    observations,
    replays,
    samples,
)
from tuner.workflows.site import Site

FACTS_KEPT_S = 2 * 86_400.0
SAMPLES_KEPT_S = 86_400.0
RUNS_KEPT = timedelta(days=2)
ALARMS_KEPT = timedelta(days=30)
DECISIONS_KEPT_S = 90 * 86_400.0
LONGEST_REPLAY = timedelta(hours=6)


def retain(site: Site) -> str:
    """Delete old rows and return a line about them; facts only where a window covers them.

    Replays that nobody ended are closed.
    """
    now_s = site.clock()
    with site.store.reading() as session:
        covered_s = observations.last_end_s(session, site.engine) or 0.0
    with site.store.writing() as session:
        oldest_s = min(now_s - FACTS_KEPT_S, covered_s)
        records = facts.delete_before(session, site.engine, oldest_s)
        counterfactuals.delete_before(session, site.engine, oldest_s)
        gauges = samples.delete_before(session, now_s - SAMPLES_KEPT_S)
        replays.fail_open(session, site.now() - LONGEST_REPLAY, site.now())
        drift.delete_before(session, site.now(), ALARMS_KEPT)
        decisions.delete_before(session, site.engine, now_s - DECISIONS_KEPT_S)
        runs = jobs.delete_before(session, site.now() - RUNS_KEPT)
    return f"deleted {records} records, {gauges} samples, {runs} runs"
