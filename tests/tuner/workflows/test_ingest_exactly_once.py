"""Kills at any moment, and several services at once, lose no step and count none twice."""

from __future__ import annotations

import multiprocessing
import random
import signal
import threading
import time
from pathlib import Path

from sqlalchemy import func, select

from tests.databases import (
    database,
    kind,
    migrated_file,
    migrated_name,
    open_another,
    postgres,
    store,
)
from tests.fixtures.player import Player
from tests.fixtures.sites import settings_for
from tests.tuner.workflows.ingesting import ingest_for_ever
from tuner.store import Store, facts
from tuner.store.facts import JournalTotals
from tuner.store.schema import StepGroupRow, StepRow
from tuner.workflows.ingest import ingest
from tuner.workflows.site import open_site

__all__ = [
    "database",
    "kind",
    "migrated_file",
    "migrated_name",
    "open_another",
    "postgres",
    "store",
]

NUM_KILLS = {"sqlite": 20, "postgresql": 8}
MODULE = "tests.tuner.workflows.ingesting"


def kill_again_and_again(player: Player, folder: Path, url: str, times: int) -> int:
    """Start and kill a service; return how many were killed with the journal half read."""
    rng = random.Random(5)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([MODULE])
    killed_in_the_middle = 0
    for _ in range(times):
        service = context.Process(target=ingest_for_ever, args=(str(folder), player.url, url))
        asked = len(player.requests)
        service.start()
        wanted = asked + rng.randint(1, 6)
        while len(player.requests) < wanted and service.is_alive():
            time.sleep(0.001)
        time.sleep(rng.random() * 0.02)
        assert service.pid is not None
        assert service.is_alive()
        service.kill()
        service.join()
        assert service.exitcode == -signal.SIGKILL
        killed_in_the_middle += int(len(player.requests) - asked > 1)
    return killed_in_the_middle


def test_many_kills_lose_nothing_and_double_nothing(
    player: Player, store: Store, database: str, kind: str, tmp_path: Path
):
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            player.write(10)
            is_over.wait(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    killed_in_the_middle = kill_again_and_again(player, tmp_path, database, NUM_KILLS[kind])
    is_over.set()
    writer.join()

    settings = settings_for(tmp_path, player.url, database_url=database)
    with open_site(settings, store) as site:
        ingest(site)
    written = player.journal.last_seq
    with store.reading() as session:
        totals = facts.totals(session, "bundled")
        numbers = session.scalars(select(func.count(StepRow.seq.distinct()))).one()
        groups = session.scalars(select(func.count()).select_from(StepGroupRow)).one()
    assert killed_in_the_middle >= NUM_KILLS[kind] // 4
    assert totals == JournalTotals(boots=1, journalled=written, stored=written, lost=0)
    assert (numbers, groups) == (written, written)


def test_services_that_pull_at_once_store_each_record_once(
    player: Player, store: Store, database: str, tmp_path: Path
):
    settings = settings_for(tmp_path, player.url, database_url=database)
    is_over = threading.Event()

    def write() -> None:
        for _ in range(30):
            player.write(20)
            time.sleep(0.01)
        is_over.set()

    def serve() -> None:
        with open_site(settings) as site:
            while not is_over.is_set():
                ingest(site, page_records=30)
            ingest(site)

    threads = [threading.Thread(target=target) for target in (write, serve, serve, serve)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with store.reading() as session:
        totals = facts.totals(session, "bundled")
    assert totals == JournalTotals(boots=1, journalled=600, stored=600, lost=0)
