"""Calibrations, on SQLite and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from collectors.records import Method
from policy.calibration import CalibratedCosts
from policy.timings import CatchUp
from policy.types import DraftObservation, StepCost
from tuner.store import Store, calibrations
from tuner.store.calibrations import StoredCalibration

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
COSTS = CalibratedCosts(
    steps=(
        StepCost(
            rows=2,
            positions=8,
            context_tokens=96,
            steps=9,
            total_s=0.27,
            total_square_s2=0.0081,
        ),
    ),
    drafts=(DraftObservation(method=Method.EAGLE, rows=2, depth=3, rounds=8, total_s=0.04),),
    catch_ups=(CatchUp(method=Method.EAGLE, context_tokens=64, rounds=1, total_s=0.01),),
)
FIRST = StoredCalibration(pinned="a" * 64, created_at=NOON, cells=("off rows=2",), costs=COSTS)


def saved(store: Store, engine: str, calibration: StoredCalibration) -> None:
    with store.writing() as session:
        calibrations.save(session, engine, calibration)


def found(store: Store, engine: str, pinned: str) -> StoredCalibration | None:
    with store.reading() as session:
        return calibrations.find(session, engine, pinned)


def test_a_calibration_comes_back_as_it_was(store: Store) -> None:
    saved(store, "one", FIRST)
    assert found(store, "one", FIRST.pinned) == FIRST


def test_it_belongs_to_one_engine_in_one_configuration(store: Store) -> None:
    saved(store, "one", FIRST)
    assert found(store, "two", FIRST.pinned) is None
    assert found(store, "one", "b" * 64) is None


def test_saving_again_replaces_what_the_configuration_had_and_no_other(store: Store) -> None:
    other = replace(FIRST, pinned="b" * 64)
    saved(store, "one", FIRST)
    saved(store, "one", other)
    more = replace(
        FIRST,
        created_at=NOON + timedelta(minutes=1),
        cells=("off rows=2", "eagle k=3 rows=2"),
        costs=COSTS.plus(COSTS),
    )

    saved(store, "one", more)

    assert found(store, "one", FIRST.pinned) == more
    assert found(store, "one", "b" * 64) == other
