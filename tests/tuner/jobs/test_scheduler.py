"""The running timetable, in front of a played engine."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.fixtures.player import Player
from tests.fixtures.sites import site_on
from tuner.jobs.due import Every
from tuner.jobs.leader import Leader
from tuner.jobs.runner import Runner
from tuner.jobs.scheduler import JobScheduler, job_scheduler
from tuner.jobs.ticks import Ticker
from tuner.jobs.timetable import Job, timetable
from tuner.store import facts, jobs, leases
from tuner.store.jobs import RunOutcome
from tuner.workflows.site import Site


def wait_until(is_true: object, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not is_true():  # type: ignore[operator]
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def scheduler_of(site: Site, *jobs_: Job) -> JobScheduler:
    leader = Leader(site.store, "a", site.now)
    return JobScheduler(
        runner=Runner(site=site, leader=leader), jobs=jobs_, ticker=Ticker(len(jobs_) + 1)
    )


def test_the_whole_timetable_runs_and_stops_cleanly(
    migrated_file: Path, tmp_path: Path, player: Player
):
    player.write(30)
    often = {"ingest_interval_s": 0.2, "window_s": 0.5}
    with site_on(migrated_file, tmp_path, player.url, **often) as site:
        scheduler = job_scheduler(site)
        names = {job.name for job in scheduler.jobs}
        scheduler.start()

        def ran() -> dict[str, jobs.JobRun]:
            with site.store.reading() as session:
                return jobs.latest_by_job(session)

        wait_until(lambda: set(ran()) == names)
        wait_until(lambda: ran()["ingest"].outcome is RunOutcome.OK)
        scheduler.stop()

        with site.store.reading() as session:
            assert facts.totals(session, site.engine).stored == 30
            assert leases.holder(session, "leader", site.now()) is None
            assert all(run.ended_at is not None for run in jobs.listed(session))
        assert "no such path" in str(ran()["keep_plan"].error)


def test_a_job_that_is_still_running_is_not_started_twice(
    site: Site, caplog: pytest.LogCaptureFixture
):
    started, go_on = threading.Semaphore(0), threading.Event()
    at_once: list[int] = []

    def work(_site: Site) -> object:
        at_once.append(1)
        started.release()
        go_on.wait(60)
        return "done"

    slow = Job(name="slow", schedule=Every(seconds=0.05), does="dawdles", run=work)
    real = Site(
        store=site.store,
        collector=site.collector,
        actuator=site.actuator,
        address=site.address,
        devices=site.devices,
        settings=site.settings,
    )
    scheduler = scheduler_of(real, slow)
    scheduler.start()
    started.acquire(timeout=60)
    time.sleep(0.4)
    running = len(at_once)
    go_on.set()
    scheduler.stop()

    assert running == 1
    assert caplog.records == []


def test_a_job_that_breaks_is_tried_again_at_its_next_time(
    migrated_file: Path, tmp_path: Path, player: Player
):
    tries: list[int] = []

    def work(_site: Site) -> object:
        tries.append(1)
        raise ZeroDivisionError

    broken = Job(name="broken", schedule=Every(seconds=0.1), does="breaks", run=work)
    with site_on(migrated_file, tmp_path, player.url) as site:
        scheduler = scheduler_of(site, broken)
        scheduler.start()
        wait_until(lambda: len(tries) >= 3)
        scheduler.stop()


def test_every_job_has_a_name_of_its_own_and_says_what_it_does(site: Site):
    lines = timetable(site.settings)

    assert len({job.name for job in lines}) == len(lines)
    assert all(job.does and str(job.schedule) for job in lines)
