"""Trials as rows, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading

import pytest

from collectors.records import OFF
from tests.fixtures.facts import DRAFT_3
from tests.fixtures.said import LOAD_1
from tuner.errors import StateChanged
from tuner.store import Store, trials
from tuner.store.trials import StoredTrial

TRIAL = StoredTrial(
    engine="bundled",
    route="chat",
    load=LOAD_1,
    setting=DRAFT_3,
    former=OFF,
    start_s=100.0,
    end_s=160.0,
    most_tokens=9,
    who="explore",
)


def begun(store: Store) -> StoredTrial:
    with store.writing() as session:
        trials.add(session, TRIAL)
        found = trials.open_on(session, "bundled")
    assert found is not None
    return found


def test_of_two_services_that_begin_a_trial_at_once_one_is_told_of_the_other(store: Store):
    gate, refusals = threading.Barrier(2), []

    def begin() -> None:
        gate.wait()
        try:
            begun(store)
        except StateChanged as error:
            refusals.append(str(error))

    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (refusal,) = refusals
    assert "the trial of draft_model k=3 on chat at load 1 on bundled is not over" in refusal


def test_the_reason_for_which_a_trial_is_being_ended_is_not_replaced(store: Store):
    one = begun(store)
    with store.writing() as session:
        trials.note_reason(session, one, "20% of its requests broke its limits")
    with store.writing() as session:
        assert trials.end(session, one, 150.0, "another plan replaced it")
        assert not trials.end(session, one, 151.0, "its time is over")

    with store.reading() as session:
        (ended,) = trials.since(session, "bundled", 0.0)
    assert (ended.ended_s, ended.reason) == (150.0, "20% of its requests broke its limits")


def test_a_trial_that_ended_leaves_room_for_the_next(store: Store):
    one = begun(store)
    with pytest.raises(StateChanged):
        begun(store)
    with store.writing() as session:
        trials.end(session, one, 150.0, "its time is over")

    assert begun(store).id != one.id
