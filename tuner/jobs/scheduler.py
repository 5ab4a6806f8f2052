"""The timetable of one service, running."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from functools import partial

from tuner.jobs.leader import RENEW_S, Leader
from tuner.jobs.runner import Runner
from tuner.jobs.ticks import Ticker
from tuner.jobs.timetable import Job, timetable
from tuner.workflows.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScheduler:
    """The running timetable of one service.

    Attributes:
        runner: runs what is due.
        jobs: the timetable.
        ticker: asks again and again.
    """

    runner: Runner
    jobs: tuple[Job, ...]
    ticker: Ticker

    def start(self) -> None:
        """Take the lease if it is free, and begin; most jobs are looked at right away."""
        self.runner.leader.renew()
        self.ticker.every("lease", RENEW_S, self.runner.leader.renew, delay_s=RENEW_S)
        now = self.runner.site.now()
        for job in self.jobs:
            look, schedule = partial(self.runner.run_if_due, job), job.schedule
            self.ticker.every(job.name, schedule.tick_s, look, delay_s=schedule.delay_s(now))
        self.ticker.start()

    def stop(self) -> None:
        """Let running jobs end at their next safe point, and give the lease back."""
        self.runner.site.stopping.set()
        self.ticker.stop()
        self.runner.leader.release()


def job_scheduler(site: Site) -> JobScheduler:
    """Put the timetable of a site together; nothing runs until ``start``."""
    jobs = timetable(site.settings)
    leader = Leader(site.store, holder_name(), site.now)
    return JobScheduler(
        runner=Runner(site=site, leader=leader), jobs=jobs, ticker=Ticker(len(jobs) + 1)
    )


def holder_name() -> str:
    """Return a name of this service that no other has."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
