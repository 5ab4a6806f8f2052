"""Facts and their cursor, on SQLite and on PostgreSQL."""

from __future__ import annotations

import math
import shutil
import stat
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import event, select, text

from collectors.records import OFF, JournalRecord
from policy.types import Window
from tests.fixtures.facts import DRAFT_3, busy_records, group, page, step, trace
from tuner.errors import BadRequest, CursorMoved, StoreConflict, StoreUnavailable
from tuner.store import Store, facts, observations, open_store
from tuner.store.facts import Cursor, Journal, JournalTotals
from tuner.store.schema import WindowRow
from tuner.store.statements import insert_rows
from tuner.workflows.observe import window_of

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def opened(store: Store, boot_id: str = "boot") -> Cursor:
    with store.writing() as session:
        return facts.open_cursor(session, "bundled", boot_id, NOW)


def add(store: Store, cursor: Cursor, *records: JournalRecord, **ends: int) -> Cursor:
    with store.writing() as session:
        return facts.add_page(session, cursor, page(cursor.boot_id, records, **ends))


def totals(store: Store) -> JournalTotals:
    with store.reading() as session:
        return facts.totals(session, "bundled")


def test_a_cursor_is_made_once_and_keeps_its_place(store: Store):
    first = opened(store)
    moved = add(store, first, step(1), trace(2))

    assert (first.last_seq, moved.last_seq) == (0, 2)
    assert opened(store) == moved
    assert moved.created_at == NOW


def test_every_record_is_counted_once(store: Store):
    cursor = add(store, opened(store), *busy_records(250))

    assert totals(store) == JournalTotals(boots=1, journalled=250, stored=250, lost=0)
    assert cursor.last_seq == 250


def test_a_page_that_overlaps_the_cursor_adds_only_what_is_new(store: Store):
    cursor = add(store, opened(store), step(1), step(2))

    add(store, cursor, step(1), step(2), step(3))

    assert totals(store).stored == 3


def test_a_page_read_by_a_slower_reader_changes_nothing(store: Store):
    start = opened(store)
    cursor = add(store, start, step(1), step(2), step(3))

    again = add(store, cursor, step(1), step(2))

    assert again == cursor
    assert totals(store).stored == 3


def test_overwritten_records_are_counted_as_lost(store: Store):
    cursor = add(store, opened(store), step(1), step(2))

    moved = add(store, cursor, step(6), step(7), first_seq=6)

    assert (moved.last_seq, moved.lost) == (7, 3)
    assert totals(store) == JournalTotals(boots=1, journalled=7, stored=4, lost=3)


def test_a_journal_that_lost_all_it_held_is_counted_as_lost(store: Store):
    cursor = add(store, opened(store), step(1))

    moved = add(store, cursor, first_seq=5, last_seq=4)

    assert (moved.last_seq, moved.lost) == (4, 3)


def test_boots_have_cursors_and_numbers_of_their_own(store: Store):
    add(store, opened(store, "a"), step(1), step(2))
    add(store, opened(store, "b"), step(1))

    with store.reading() as session:
        newest = facts.latest_cursor(session, "bundled")
    assert newest is not None
    assert (newest.boot_id, newest.last_seq) == ("b", 1)
    assert totals(store) == JournalTotals(boots=2, journalled=3, stored=3, lost=0)


def test_capture_and_step_journals_do_not_share_a_cursor(store: Store):
    add(store, opened(store), step(1))

    with store.reading() as session:
        assert facts.latest_cursor(session, "bundled", Journal.CAPTURES) is None


def test_of_two_readers_with_one_cursor_only_one_stores(store: Store):
    cursor = opened(store)
    add(store, cursor, step(1))

    with pytest.raises(CursorMoved, match="moved past 0"):
        add(store, cursor, step(1), step(2))

    assert totals(store).stored == 1


def test_records_and_cursor_go_together_or_not_at_all(store: Store):
    cursor = opened(store)

    def interrupted() -> None:
        with store.writing() as session:
            facts.add_page(session, cursor, page("boot", (step(1), step(2))))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()

    assert totals(store).stored == 0
    assert opened(store).last_seq == 0


def test_times_without_a_zone_are_refused(store: Store):
    with pytest.raises(StoreConflict, match="has no time zone"), store.writing() as session:
        facts.open_cursor(session, "bundled", "boot", NOW.replace(tzinfo=None))


def test_old_facts_go_and_stay_counted(store: Store):
    add(store, opened(store), step(1, 10.0, (group(),)), trace(2, 11.0), step(3, 20.0))

    with store.writing() as session:
        assert facts.delete_before(session, "bundled", 20.0) == 2

    assert totals(store) == JournalTotals(boots=1, journalled=3, stored=3, lost=0)
    with store.reading() as session:
        assert facts.first_at_s(session, "bundled") == 20.0


def test_a_stored_window_comes_back_as_it_was(store: Store):
    add(store, opened(store), *busy_records(300))
    with store.reading() as session:
        window = window_of(session, "bundled", 1_000.0, 1_006.0)
    with store.writing() as session:
        assert observations.add(session, "bundled", window, NOW)
        assert not observations.add(session, "bundled", window, NOW)

    with store.reading() as session:
        assert observations.newest(session, "bundled", 5) == (window,)
        assert observations.between(session, "bundled", 0.0, 1_006.0) == (window,)
        assert observations.between(session, "bundled", 1_006.0, 2_000.0) == ()
        assert observations.last_end_s(session, "bundled") == 1_006.0
    assert window.observations
    assert window.requests
    assert window.decode_sums


def test_reference_steps_come_back_as_pairs_and_as_passes_of_their_own(store: Store):
    drafting = group(setting=DRAFT_3)
    plain = group(setting=OFF, outcomes=((0, 0, 1),))
    records = (
        step(1, 1.0, (drafting,), verify_s=0.0175),
        step(2, 2.0, (plain,), verify_s=0.007, is_reference=True),
        step(3, 3.0, (drafting,), verify_s=0.0175),
        step(4, 4.0, (plain,), plan_digest="e" * 64),
    )
    add(store, opened(store), *records)
    with store.reading() as session:
        window = window_of(session, "bundled", 0.0, 10.0)
    with store.writing() as session:
        observations.add(session, "bundled", window, NOW)
    with store.reading() as session:
        assert observations.newest(session, "bundled", 1) == (window,)

    (pairing,) = window.pairings
    assert (pairing.load.label, pairing.pairs) == ("1", 1)
    assert pairing.sum_log_ratio == pytest.approx(math.log(0.0205 / 0.01))
    assert (pairing.drafting_tokens, pairing.drafting_steps) == (6, 2)
    passes = {seen.setting: (seen.passes, seen.planned_passes) for seen in window.observations}
    assert passes == {OFF: (2, 1), DRAFT_3: (2, 2)}


def test_a_window_stored_before_there_were_pairings_has_none(store: Store):
    with store.writing() as session:
        observations.add(session, "bundled", Window(start_s=0.0, end_s=60.0), NOW)
        (row,) = session.scalars(select(WindowRow))
        row.body = {key: value for key, value in row.body.items() if key != "pairings"}
    with store.reading() as session:
        assert observations.newest(session, "bundled", 1) == (Window(start_s=0.0, end_s=60.0),)


def test_two_writers_and_a_reader_do_not_lock_each_other_out(
    open_another: Callable[[], Store],
):
    """Field case F20: two writers of 500 rows each while a reader polls."""
    stores = [open_another() for _ in range(3)]
    failures: list[BaseException] = []
    is_over = threading.Event()

    def write(store: Store, boot_id: str) -> None:
        try:
            cursor = opened(store, boot_id)
            for seq in range(1, 501):
                cursor = add(store, cursor, step(seq))
        except BaseException as error:  # noqa: BLE001, reported by the test's own thread
            failures.append(error)

    def poll(store: Store) -> None:
        try:
            while not is_over.is_set():
                totals(store)
        except BaseException as error:  # noqa: BLE001, reported by the test's own thread
            failures.append(error)

    writers = [
        threading.Thread(target=write, args=(store, name))
        for store, name in zip(stores, ("a", "b"), strict=False)
    ]
    reader = threading.Thread(target=poll, args=(stores[2],))
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    is_over.set()
    reader.join()

    assert failures == []
    assert totals(stores[2]).stored == 1_000


def test_a_store_that_is_not_there_is_one_clear_line(kind: str, database: str):
    url = (
        "sqlite:////proc/nowhere.db" if kind == "sqlite" else "postgresql://nobody@127.0.0.1:1/none"
    )
    store = open_store(url)

    with pytest.raises(StoreUnavailable, match="spectuner db upgrade") as caught:
        totals(store)

    assert "\n" not in str(caught.value)
    store.close()


def test_a_file_that_is_no_database_is_one_clear_line(tmp_path: Path):
    path = tmp_path / "notes.db"
    path.write_bytes(b"these are notes, not a database. " * 200)
    store = open_store(f"sqlite:///{path}")

    with pytest.raises(BadRequest, match=r"notes\.db cannot be used: file is not a database; name"):
        totals(store)

    store.close()


def test_a_new_database_file_can_be_read_by_its_owner_only(tmp_path: Path):
    path = tmp_path / "facts.db"
    store = open_store(f"sqlite:///{path}")

    with store.writing() as session:
        session.execute(text("CREATE TABLE notes (words TEXT)"))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    assert "facts.db-wal" in modes
    assert set(modes.values()) == {0o600}
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:open-sesame@127.0.0.1:port/facts",
        "mysterydb://ann:open-sesame@127.0.0.1/facts",
        "ann:open-sesame@127.0.0.1",
    ],
)
def test_a_url_that_cannot_be_read_is_one_line_without_its_password(url: str):
    with pytest.raises(BadRequest, match=r"cannot be read: .*; write it like") as caught:
        open_store(url)

    assert "open-sesame" not in str(caught.value)


def test_folding_twenty_thousand_steps_is_a_handful_of_queries(migrated_file: Path, tmp_path: Path):
    shutil.copyfile(migrated_file, tmp_path / "big.db")
    store = open_store(f"sqlite:///{tmp_path / 'big.db'}")
    records = tuple(busy_records(20_000))
    cursor = opened(store)
    for start in range(0, len(records), 5_000):
        cursor = add(store, cursor, *records[start : start + 5_000])

    statements: list[str] = []
    with store.reading() as session:
        event.listen(
            session.get_bind(),
            "before_cursor_execute",
            lambda *told: statements.append(told[2]),
        )
        window = window_of(session, "bundled", 0.0, 10_000.0)

    assert sum(mix.steps for mix in window.mixes) == 18_000
    assert any(one.setting == OFF for one in window.observations)
    assert 0 < len(statements) < 20
    store.close()


def test_more_windows_than_a_statement_takes_values_are_read(store: Store):
    """PostgreSQL takes 65,535."""
    empty = {"requests": [], "step_costs": [], "draft_costs": [], "mixes": []}
    rows = [
        {"engine": "bundled", "start_s": at, "end_s": at + 1, "created_at": NOW, "body": empty}
        for at in range(66_000)
    ]
    with store.writing() as session:
        insert_rows(session, WindowRow, rows)

    with store.reading() as session:
        assert len(observations.between(session, "bundled", 0.0, 1e6)) == 66_000
