"""Delete what is old: facts that windows were made of, samples, runs, and what nobody needs."""

from __future__ import annotations

import math
from datetime import timedelta

from sqlalchemy.orm import Session

from collectors.records.parsing import as_time
from tuner.store import (
    counterfactuals,
    decisions,
    drift,
    facts,
    gate_runs,
    jobs,
    observations,
    replays,
    retention,
    samples,
    trials,
)
from tuner.workflows.observe import history_length
from tuner.workflows.site import Site
from tuner.workflows.trial_tokens import DAY_S

FACTS_KEPT_S = 2 * 86_400.0
SAMPLES_KEPT_S = 86_400.0
RUNS_KEPT = timedelta(days=2)
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
        runs = jobs.delete_before(session, site.now() - RUNS_KEPT)
        gate_runs.delete_before(session, site.now() - RUNS_KEPT)
    rows = _delete_decided(site)
    return f"deleted {records} records, {gauges} samples, {runs} runs, {rows} older rows"


def _delete_decided(site: Site) -> int:
    """Delete old windows, decisions and proofs that nothing needs any more; return how many."""
    with site.store.writing() as session:
        oldest_s = _needed_since_s(site, session)
        return (
            drift.delete_before(session, as_time(oldest_s))
            + decisions.delete_before(session, site.engine, oldest_s)
            + trials.delete_before(session, site.engine, oldest_s)
            + retention.delete_unneeded(session, site.engine, as_time(oldest_s))
        )


def _needed_since_s(site: Site, session: Session) -> float:
    """Return since when rows stay: what the policy looks at and a day of trials, however short."""
    kept_s = max(site.settings.retention_days * DAY_S, DAY_S)
    count = history_length(site.settings)
    history_s = observations.start_of_newest(session, site.engine, count)
    return min(site.clock() - kept_s, math.inf if history_s is None else history_s)
