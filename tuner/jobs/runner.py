"""Run one job when it is due: one row a run, errors on record, never twice for one due time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from collectors.errors import CollectorError
from policy.errors import PolicyError
from tuner.errors import Interrupted, StoreUnavailable, TunerError
from tuner.jobs.leader import Leader
from tuner.jobs.timetable import Job
from tuner.store import jobs
from tuner.store.jobs import RunOutcome
from tuner.workflows.site import Site

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run went.

    Attributes:
        outcome: ok, failed or interrupted.
        detail: what it did, one line.
        error: why it failed, one line; None where it did not.
    """

    outcome: RunOutcome
    detail: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs jobs of one service.

    Attributes:
        site: the engine and its store.
        leader: tells whether this service acts.
        monotonic: seconds, for durations.
    """

    site: Site
    leader: Leader
    monotonic: Callable[[], float] = time.monotonic

    def run_if_due(self, job: Job) -> Result | None:
        """Run a job for its newest due time; None where that was run, or another service leads."""
        fence = self.leader.fence
        if fence is None or self.site.stopping.is_set():
            return None
        site = replace(self.site, store=self.site.store.fenced(fence))
        try:
            number = self._open(site, job)
            return None if number is None else self._run(site, job, number)
        except StoreUnavailable as error:
            _LOGGER.warning("job %s: %s", job.name, error)
        except TunerError as error:
            _LOGGER.info("job %s stood back: %s", job.name, error)
        return None

    def _open(self, site: Site, job: Job) -> int | None:
        now = site.now()
        due = job.schedule.latest_due(now)
        with site.store.writing() as session:
            return jobs.start(
                session,
                job=job.name,
                due_key=due.key,
                due_at=due.at,
                holder=self.leader.holder,
                at=now,
            )

    def _run(self, site: Site, job: Job, number: int) -> Result:
        started_s = self.monotonic()
        result = result_of(job, site)
        duration_s = self.monotonic() - started_s
        with self.site.store.writing() as session:
            jobs.finish(
                session,
                number,
                outcome=result.outcome,
                at=site.now(),
                duration_s=duration_s,
                detail=result.detail,
                error=result.error,
            )
        return result


def result_of(job: Job, site: Site) -> Result:
    """Run a job's workflow; whatever it raises becomes a result with a reason."""
    try:
        return Result(outcome=RunOutcome.OK, detail=_line(str(job.run(site))))
    except Interrupted as error:
        return Result(outcome=RunOutcome.INTERRUPTED, error=_line(str(error)))
    except (TunerError, CollectorError, PolicyError) as error:
        _LOGGER.warning("job %s failed: %s", job.name, error)
        return Result(outcome=RunOutcome.FAILED, error=_line(str(error)))
    except Exception as error:  # the edge of the job: the scheduler must live on
        _LOGGER.exception("job %s broke", job.name)
        reason = f"{type(error).__name__}: {error}"
        return Result(outcome=RunOutcome.FAILED, error=_line(reason))


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
