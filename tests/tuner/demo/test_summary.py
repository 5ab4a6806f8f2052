from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.records import Method, Plan, Setting
from collectors.records.parsing import as_time
from tests.fixtures.facts import busy_records, page
from tests.fixtures.said import change, said
from tuner.demo.summary import DemoSummary, summarise, totals_before
from tuner.store import Store, facts, migrating, open_store, recommendations
from tuner.store.counts import Span
from tuner.store.recommendations import State

START_S = 1_000.0
DRAFT_5 = Setting(method=Method.DRAFT_MODEL, k=5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path / 'spectuner.db'}"
    migrating.upgrade(url)
    opened = open_store(url)
    yield opened
    opened.close()


def store_run(store: Store, boot_id: str, records: int, start_s: float) -> None:
    with store.writing() as session:
        cursor = facts.open_cursor(session, "bundled", boot_id, as_time(start_s))
        written = tuple(busy_records(records, start_s=start_s))
        facts.add_page(session, cursor, page(boot_id, written))


def summed(store: Store, start_s: float, before: facts.JournalTotals) -> DemoSummary:
    return summarise(
        store,
        span=Span(engine="bundled", start_s=start_s, end_s=start_s + 1_000),
        started_at=as_time(start_s),
        plan=Plan(),
        before=before,
        journalled=200,
        clients=(),
        unsent=0,
    )


def test_a_second_run_on_the_same_facts_counts_only_its_own(store: Store) -> None:
    store_run(store, "first", 100, START_S)
    before = totals_before(store, "bundled")
    store_run(store, "second", 200, START_S + 5_000)

    first, second = (
        summed(store, START_S, totals_before(store, "nobody")),
        summed(store, START_S + 5_000, before),
    )

    assert (second.steps.journalled, second.steps.stored, second.steps.lost) == (200, 200, 0)
    assert sum(cell.requests for cell in first.cells) == 10
    assert sum(cell.requests for cell in second.cells) == 20


def test_the_figures_have_the_documented_keys(store: Store) -> None:
    store_run(store, "first", 100, START_S)

    figures = summed(store, START_S, totals_before(store, "nobody")).to_dict()

    assert set(figures) == {"cells", "recommendations", "replays", "divergence", "steps"}
    assert figures["divergence"] == {
        "pairs": 0,
        "identical": 0,
        "near_tie": 0,
        "suspicious": 0,
        "control_identical": 0,
    }


def test_what_was_replaced_before_anybody_acted_is_not_shown(store: Store) -> None:
    now = datetime.now(UTC)
    with store.writing() as session:
        add = recommendations.add
        first = add(session, "bundled", said("chat", change()), Plan(), who="job", at=now)
        add(session, "bundled", said("chat", change(DRAFT_5)), Plan(), who="job", at=now)
        live = add(session, "bundled", said("rag", change()), Plan(), who="job", at=now)
        assert first is not None
        assert live is not None
        for state in (State.APPROVED, State.STAGED, State.PROMOTED, State.SUPERSEDED):
            recommendations.move(session, live.id, state, who="Ada", at=now, why="so")

    summary = summed(store, now.timestamp() - 1, totals_before(store, "nobody"))

    assert len(summary.recommendations) == 3
    assert [entry.id for entry in summary.worth_showing] == [first.id + 1, live.id]
    assert [entry["id"] for entry in summary.to_dict()["recommendations"]] == [1, 2, 3]  # type: ignore[attr-defined]
