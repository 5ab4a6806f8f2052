"""What a recommendation brought, read from SQLite and from PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from collectors.records import OFF, Plan
from policy.decode_sum import DecodeSum
from policy.types import LoadMix, Window
from tests.fixtures.facts import DRAFT_3
from tests.fixtures.said import LOAD_1, PLAIN, plan, said
from tuner.store import Store, decisions, observations, recommendations
from tuner.store.decisions import Decision
from tuner.store.recommendations import State, StoredRecommendation
from tuner.store.schema import WindowRow
from tuner.store.statements import insert_rows
from tuner.workflows.realised import realised

ENGINE = "bundled"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOW_S = NOW.timestamp()
DRAFTING = plan(("chat", LOAD_1, DRAFT_3))


def window(number: int, rate: float = 50.0) -> Window:
    """A minute that ends so many minutes after NOW, in which chat had the steps to itself."""
    end_s = NOW_S + 60 * number
    mix = LoadMix(
        load=LOAD_1,
        steps=100,
        rows_by_route={"chat": 1.0},
        context_tokens=512.0,
        tokens=round(2 * rate),
        busy_s=2.0,
    )
    counted = DecodeSum(load=LOAD_1, route="chat", steps=100, tokens=round(2 * rate), busy_s=2.0)
    return Window(start_s=end_s - 60, end_s=end_s, mixes=(mix,), decode_sums=(counted,))


def close(store: Store, *windows: Window) -> None:
    with store.writing() as session:
        for one in windows:
            observations.add(session, ENGINE, one, NOW)


def note(store: Store, *moments: tuple[float, Plan]) -> None:
    """Log plans that came into force so many minutes after NOW."""
    with store.writing() as session:
        for minutes, brought in moments:
            made = Decision(
                engine=ENGINE,
                at_s=NOW_S + 60 * minutes,
                plan=brought,
                policy_version="v",
                who="ann",
                arms=(OFF, DRAFT_3),
            )
            decisions.note(session, made)


@pytest.fixture
def pending(store: Store) -> StoredRecommendation:
    with store.writing() as session:
        found = recommendations.add(session, ENGINE, said(), PLAIN, who="recommend", at=NOW)
    assert found is not None
    return found


@pytest.fixture
def promoted(store: Store, pending: StoredRecommendation) -> StoredRecommendation:
    with store.writing() as session:
        for state in (State.APPROVED, State.STAGED, State.PROMOTED):
            recommendations.move(session, pending.id, state, who="ann", at=NOW, why="it pays")
        return recommendations.one(session, pending.id)


def test_windows_before_and_since_are_told_apart_by_the_plan_in_force(
    store: Store, promoted: StoredRecommendation
):
    note(store, (-99.0, PLAIN), (0.0, DRAFTING))
    close(store, *(window(n, 40.0) for n in range(-14, 1)))
    close(store, *(window(n, 72.0) for n in range(1, 13)))

    with store.reading() as session:
        found = realised(session, promoted)

    assert found is not None
    (level,) = found.levels
    assert (found.since_s, found.windows) == (NOW_S, 27)
    assert level.before is not None
    assert level.realised is not None
    assert (level.before.windows, level.realised.windows) == (15, 12)
    assert level.predicted is not None
    assert level.predicted.mean == 75.0
    assert (level.over_predicted, level.over_before) == pytest.approx((-0.04, 0.8))


def test_a_window_that_straddles_a_change_counts_on_neither_side(
    store: Store, promoted: StoredRecommendation
):
    note(store, (-99.0, PLAIN), (0.0, DRAFTING), (5.5, PLAIN), (8.0, DRAFTING))
    close(store, *(window(n, 72.0) for n in range(1, 21)))

    with store.reading() as session:
        found = realised(session, promoted)

    assert found is not None
    (level,) = found.levels
    assert level.realised is not None
    assert level.realised.windows == 5 + 12
    assert level.before is None


def test_too_few_windows_are_counted_and_give_no_figure(
    store: Store, promoted: StoredRecommendation
):
    note(store, (-99.0, PLAIN), (0.0, DRAFTING))
    close(store, *(window(n) for n in range(1, 4)))

    with store.reading() as session:
        found = realised(session, promoted)

    assert found is not None
    (level,) = found.levels
    assert level.realised is not None
    assert (level.realised.windows, level.realised.tokens_per_s) == (3, None)


def test_what_never_came_into_force_brought_nothing(store: Store, pending: StoredRecommendation):
    close(store, window(1))

    with store.reading() as session:
        assert realised(session, pending) is None


def test_without_any_window_the_prediction_stands_alone(
    store: Store, promoted: StoredRecommendation
):
    with store.reading() as session:
        found = realised(session, promoted)

    assert found is not None
    (level,) = found.levels
    assert (found.windows, level.realised, level.before) == (0, None, None)


def test_the_windows_nearest_to_a_moment_are_read_from_both_sides(store: Store):
    close(store, *(window(n) for n in range(-4, 5)))

    with store.reading() as session:
        near = observations.around(session, ENGINE, NOW_S, 2)
        within = observations.around(session, ENGINE, NOW_S + 30, 2)

    assert near == tuple(window(n) for n in (-1, 0, 1, 2))
    assert [one.end_s for one in within] == [window(n).end_s for n in (-1, 0, 2, 3)]


def test_a_window_stored_before_sums_were_kept_is_read_without_them(store: Store):
    row = {"engine": ENGINE, "start_s": 0.0, "end_s": 60.0, "created_at": NOW}
    with store.writing() as session:
        insert_rows(session, WindowRow, [{**row, "body": {"mixes": []}}])

    with store.reading() as session:
        assert observations.around(session, ENGINE, 60.0, 5) == (Window(start_s=0.0, end_s=60.0),)


def test_each_plan_is_read_once_and_holds_until_the_next(store: Store):
    note(store, (0.0, PLAIN), (1.0, DRAFTING), (2.0, PLAIN), (3.0, DRAFTING))

    with store.reading() as session:
        log = decisions.plans_of(session, ENGINE, NOW_S + 70, NOW_S + 150)
        nothing = decisions.plans_of(session, "other", NOW_S, NOW_S + 150)

    def held(start_s: float, end_s: float) -> str | None:
        found = log.throughout(NOW_S + start_s, NOW_S + end_s)
        return None if found is None else found.digest

    assert held(60, 120) == DRAFTING.digest
    assert held(120, 999) == PLAIN.digest
    assert [held(50, 60), held(61, 121)] == [None, None]
    assert nothing.throughout(NOW_S, NOW_S + 1) is None
