from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.records import JournalPage, JournalRecord
from tests.tuner.engine.records import step_record
from tuner.engine.journal import Journal


def test_numbers_start_at_one_and_rise_by_one():
    journal = Journal("b")

    assert journal.next_seq() == 1
    assert [journal.append(step_record).seq for _ in range(3)] == [1, 2, 3]
    assert (journal.last_seq, journal.next_seq(), journal.num_lost) == (3, 4, 0)


@given(
    capacity=st.integers(1, 7),
    written=st.integers(0, 20),
    after=st.integers(0, 25),
    limit=st.integers(1, 9),
)
def test_a_page_is_what_is_still_held_after_the_cursor_up_to_the_limit(
    capacity: int, written: int, after: int, limit: int
):
    journal = Journal("b", capacity=capacity)
    for _ in range(written):
        journal.append(step_record)

    page = journal.page(after, limit)

    held = [seq for seq in range(1, written + 1) if seq > written - capacity]
    assert [record.seq for record in page.records] == [seq for seq in held if seq > after][:limit]
    assert page.first_seq == max(1, written - capacity + 1)
    assert page.last_seq == written
    assert journal.num_lost == max(0, written - capacity)


def test_reading_page_by_page_while_records_are_overwritten_counts_every_loss():
    journal = Journal("b", capacity=4)
    cursor, seen, lost = 0, 0, 0
    for round_ in range(6):
        for _ in range(round_ * 2):
            journal.append(step_record)
        page = journal.page(cursor, 100)
        lost += page.lost_after(cursor)
        seen += len(page.records)
        cursor = page.last_seq

    assert seen + lost == journal.last_seq == 30
    assert lost > 0


def test_a_cursor_of_another_boot_starts_from_the_beginning():
    journal = Journal("new")
    for _ in range(3):
        journal.append(step_record)

    assert len(journal.page(2, 10, "new").records) == 1
    assert len(journal.page(2, 10, "old").records) == 3


def test_a_number_whose_record_could_not_be_built_is_given_again():
    journal = Journal("b")

    def fail(seq: int) -> JournalRecord:
        raise RuntimeError("no record")

    with pytest.raises(RuntimeError, match="no record"):
        journal.append(fail)
    assert journal.append(step_record).seq == 1


def test_a_record_with_a_wrong_number_is_refused_and_leaves_no_gap():
    journal = Journal("b")

    with pytest.raises(ValueError, match="must carry number 1, got 7"):
        journal.append(lambda seq: step_record(7))
    assert journal.last_seq == 0


def test_a_journal_that_could_hold_nothing_is_refused():
    with pytest.raises(ValueError, match="at least 1 record, got 0"):
        Journal("b", capacity=0)


def test_observers_see_each_record_once_after_it_can_be_read():
    seen: list[tuple[int, int]] = []

    def observe(record: JournalRecord) -> None:
        seen.append((record.seq, len(journal.page(0, 10).records)))

    journal = Journal("b", observers=(observe,))
    journal.append(step_record)
    journal.append(step_record)

    assert seen == [(1, 1), (2, 2)]


def test_readers_beside_writers_see_each_record_once_and_in_order():
    journal = Journal("b")
    writers = [
        threading.Thread(target=lambda: [journal.append(step_record) for _ in range(500)])
        for _ in range(3)
    ]
    for writer in writers:
        writer.start()
    seen: list[int] = []
    while len(seen) < 1500:
        page = journal.page(seen[-1] if seen else 0, 50)
        seen.extend(record.seq for record in page.records)
    for writer in writers:
        writer.join()

    assert seen == list(range(1, 1501))


def test_a_page_survives_the_wire():
    journal = Journal("b")
    journal.append(step_record)
    page = journal.page(0, 10)

    assert JournalPage.from_dict(page.to_dict()) == page
