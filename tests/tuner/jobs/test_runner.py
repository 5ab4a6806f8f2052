"""One row a run, errors on record, one leader."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from collectors.errors import SourceUnreachable
from tests.fixtures.sites import Clock
from tuner.errors import Interrupted, NothingToDo
from tuner.jobs.due import Every
from tuner.jobs.leader import Leader
from tuner.jobs.runner import Result, Runner
from tuner.jobs.timetable import Job
from tuner.store import jobs, pinned
from tuner.store.jobs import JobRun, RunOutcome
from tuner.workflows.site import Site


def job(run: Callable[[Site], object] = lambda site: "done", seconds: float = 60.0) -> Job:
    return Job(name="work", schedule=Every(seconds=seconds), does="works", run=run)


def runner(site: Site, holder: str = "a", *, leads: bool = True) -> Runner:
    leader = Leader(site.store, holder, site.now)
    if leads:
        leader.renew()
    return Runner(site=site, leader=leader)


def runs(site: Site) -> tuple[JobRun, ...]:
    with site.store.reading() as session:
        return jobs.listed(session)


def test_a_run_is_a_row_with_outcome_duration_and_what_it_did(site: Site):
    times = iter((10.0, 12.5))
    timed = replace(runner(site), monotonic=lambda: next(times))

    assert timed.run_if_due(job()) == Result(outcome=RunOutcome.OK, detail="done")

    (run,) = runs(site)
    assert (run.job, run.outcome, run.duration_s) == ("work", RunOutcome.OK, 2.5)
    assert (run.detail, run.error, run.holder) == ("done", None, "a")
    assert run.due_at <= run.started_at


def test_a_due_time_is_run_once(site: Site, clock: Clock):
    one = runner(site)

    assert one.run_if_due(job()) is not None
    assert one.run_if_due(job()) is None
    clock.now_s += 60
    assert one.run_if_due(job()) is not None
    assert len(runs(site)) == 2


def test_after_a_long_pause_one_run_catches_up(site: Site, clock: Clock):
    one = runner(site)
    one.run_if_due(job())
    clock.now_s += 10
    one.leader.renew()
    clock.now_s += 3_600
    one.leader.renew()

    assert one.run_if_due(job()) is not None
    assert one.run_if_due(job()) is None


@pytest.mark.parametrize(
    ("error", "outcome", "line"),
    [
        (SourceUnreachable("no answer;\nis it up?"), RunOutcome.FAILED, "no answer; is it up?"),
        (NothingToDo("nothing captured"), RunOutcome.FAILED, "nothing captured"),
        (Interrupted("stopping"), RunOutcome.INTERRUPTED, "stopping"),
        (ZeroDivisionError("oops"), RunOutcome.FAILED, "ZeroDivisionError: oops"),
    ],
)
def test_an_error_is_on_record_and_kills_nothing(
    site: Site,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    outcome: RunOutcome,
    line: str,
):
    def fail(_site: Site) -> object:
        raise error

    with caplog.at_level(logging.CRITICAL):
        assert runner(site).run_if_due(job(fail)) == Result(outcome=outcome, error=line)

    (run,) = runs(site)
    assert (run.outcome, run.error) == (outcome, line)


def test_whoever_does_not_lead_runs_nothing(site: Site, another_site: Site):
    leading, following = runner(site, "a"), runner(another_site, "b")

    assert following.leader.fence is None
    assert following.run_if_due(job()) is None
    assert leading.run_if_due(job()) is not None


def test_another_service_takes_over_when_the_leader_is_gone(
    site: Site, another_site: Site, clock: Clock
):
    runner(site, "a")
    heir = runner(another_site, "b")
    clock.now_s += 16

    heir.leader.renew()

    assert heir.run_if_due(job()) is not None


def test_a_leader_that_slept_cannot_write_any_more(site: Site, another_site: Site, clock: Clock):
    sleeper = runner(site, "a")
    clock.now_s += 16
    runner(another_site, "b")

    assert sleeper.run_if_due(job()) is None
    assert runs(site) == ()


def test_a_lease_lost_in_the_middle_of_a_run_keeps_its_writes_out(
    site: Site, another_site: Site, clock: Clock
):
    def slow_work(own: Site) -> object:
        clock.now_s += 16
        runner(another_site, "b")
        with own.store.writing() as session:
            return pinned.listed(session)

    result = runner(site, "a").run_if_due(job(slow_work))

    assert result is not None
    assert result.outcome is RunOutcome.FAILED
    assert "another service leads" in str(result.error)


def test_runs_of_a_dead_leader_are_closed_by_the_next(site: Site, another_site: Site, clock: Clock):
    def die(own: Site) -> object:
        raise SystemExit

    with pytest.raises(SystemExit):
        runner(site, "a").run_if_due(job(die))
    clock.now_s += 16
    runner(another_site, "b")

    (run,) = runs(site)
    assert run.outcome is RunOutcome.INTERRUPTED
    assert run.error == "the service ended during this run"


def test_a_service_that_stops_starts_nothing_new(site: Site):
    one = runner(site)
    site.stopping.set()

    assert one.run_if_due(job()) is None


def test_two_services_race_for_one_due_time_and_one_runs(site: Site, another_site: Site):
    """Field case F19, with both of them believing to lead."""
    first, second = runner(site, "a"), runner(another_site, "b", leads=False)
    object.__setattr__(second.leader, "_fence", first.leader.fence)
    done: list[str] = []
    gate = threading.Barrier(2)

    def tick(one: Runner) -> None:
        gate.wait()
        one.run_if_due(job(lambda site: done.append("ran")))

    threads = [threading.Thread(target=tick, args=(one,)) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert done == ["ran"]
    assert len(runs(site)) == 1
