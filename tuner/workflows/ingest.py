"""Pull the journal until its end; records and cursor go into the store in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.records import JournalPage
from tuner.errors import CursorMoved, JournalWentBack
from tuner.store import facts, samples
from tuner.store.facts import Cursor
from tuner.workflows.site import Site

PAGE_RECORDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What one pull stored.

    Attributes:
        stored: records stored.
        lost: records that were overwritten before they were read.
        boots: starts of the engine that were new.
        yielded: pages that another service had stored first.
        last_seq: newest number stored; 0 before the first.
    """

    stored: int = 0
    lost: int = 0
    boots: int = 0
    yielded: int = 0
    last_seq: int = 0

    def plus(self, other: Ingested) -> Ingested:
        """Return both together; the newest number is the other's."""
        return Ingested(
            stored=self.stored + other.stored,
            lost=self.lost + other.lost,
            boots=self.boots + other.boots,
            yielded=self.yielded + other.yielded,
            last_seq=other.last_seq,
        )

    def __str__(self) -> str:
        """Say it in one line."""
        return f"stored {self.stored} records to {self.last_seq}, lost {self.lost}"


def ingest(site: Site, page_records: int = PAGE_RECORDS) -> Ingested:
    """Pull until the end that the journal had when the pull began.

    Safe to kill at any moment and to run from several services at once: a page is stored whole
    with the moved cursor, or not at all. What the engine writes meanwhile is the next pull's.

    Raises:
        SourceUnreachable: the engine does not answer; what was stored stays.
        SourceRefused: the engine refused.
        InvalidRecord: a record means nothing; the cursor stays before its page.
        JournalWentBack: the journal holds less than was read before, in the same boot.
    """
    total = Ingested()
    goal: _Goal | None = None
    while True:
        asked_s = site.clock()
        page = _next_page(site, page_records)
        if goal is None or goal.boot_id != page.boot_id:
            goal = _Goal(boot_id=page.boot_id, last_seq=page.last_seq, asked_s=asked_s)
        step = _store_page(site, page, goal)
        total = total.plus(step)
        if step.last_seq >= goal.last_seq:
            return total


@dataclass(frozen=True, slots=True, kw_only=True)
class _Goal:
    """How far a pull goes.

    Attributes:
        boot_id: start of the engine.
        last_seq: end of the journal when it was first asked for.
        asked_s: when that was, Unix seconds.
    """

    boot_id: str
    last_seq: int
    asked_s: float


def silence_reason(site: Site) -> str | None:
    """Say that the journal's end was not reached lately; None where what happens is known."""
    with site.store.reading() as session:
        cursor = facts.latest_cursor(session, site.engine)
    if cursor is None or cursor.caught_up_s is None:
        return f"{site.engine} has not been read yet"
    silent_s = site.clock() - cursor.caught_up_s
    is_silent = silent_s > site.settings.stale_after_s
    return f"{site.engine} was last read {silent_s:.0f} s ago" if is_silent else None


def sample_devices(site: Site) -> str:
    """Store what the engine and the devices say of themselves now, and return a line about it."""
    load = site.collector.load()
    reading = site.devices.read(site.clock())
    with site.store.writing() as session:
        samples.add_engine(session, load)
        for sample in reading.samples:
            samples.add_device(session, sample)
    line = f"{load.running} running, {load.waiting} waiting"
    return f"{line}; {reading.no_gpu_reason}" if reading.no_gpu_reason else line


def _next_page(site: Site, limit: int) -> JournalPage:
    """Ask after the newest cursor; where another boot answers, after that boot's own cursor."""
    with site.store.reading() as session:
        newest = facts.latest_cursor(session, site.engine)
    if newest is None:
        return site.collector.steps(0, limit)
    page = site.collector.steps(newest.last_seq, limit, newest.boot_id)
    if page.boot_id != newest.boot_id:
        with site.store.reading() as session:
            known = facts.find_cursor(session, site.engine, page.boot_id)
        return page if known is None else site.collector.steps(known.last_seq, limit, page.boot_id)
    if page.last_seq < newest.last_seq:
        raise JournalWentBack(
            f"journal of {site.engine} boot {page.boot_id} ends at {page.last_seq}, but "
            f"{newest.last_seq} was read before; restart the engine, so that it gets a new boot id"
        )
    return page


def _store_page(site: Site, page: JournalPage, goal: _Goal) -> Ingested:
    try:
        with site.store.writing() as session:
            known = facts.find_cursor(session, site.engine, page.boot_id)
            cursor = known or facts.open_cursor(session, site.engine, page.boot_id, site.now())
            moved = facts.add_page(session, cursor, page)
            caught_up_s = goal.asked_s if moved.last_seq >= goal.last_seq else None
            facts.note_pull(session, moved, site.clock(), caught_up_s)
    except CursorMoved:
        return Ingested(yielded=1, last_seq=_stored_seq(site, page.boot_id))
    return _difference(cursor, moved, is_new=known is None)


def _stored_seq(site: Site, boot_id: str) -> int:
    with site.store.reading() as session:
        cursor = facts.find_cursor(session, site.engine, boot_id)
    return cursor.last_seq if cursor else 0


def _difference(before: Cursor, after: Cursor, *, is_new: bool) -> Ingested:
    lost = after.lost - before.lost
    return Ingested(
        stored=after.last_seq - before.last_seq - lost,
        lost=lost,
        boots=int(is_new),
        last_seq=after.last_seq,
    )
