"""Upgrading from nothing equals the tables; downgrades; two upgrades at once; nothing lost."""

from __future__ import annotations

import signal
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, MetaData, event, func, insert, inspect, select

from collectors.records import OFF, Plan, PlanEntry, load_level_of
from tests.databases import empty_database, kind, postgres
from tests.fixtures.facts import DRAFT_3, group, page, step
from tuner.errors import BadRequest, SchemaOutdated, StoreConflict
from tuner.store import access, arms, facts, migrating, open_store, trials
from tuner.store.plans import Outcome
from tuner.store.schema import Base, PlanRow
from tuner.store.statements import insert_rows

__all__ = ["empty_database", "kind", "postgres"]

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def tables(url: str) -> set[str]:
    store = open_store(url)
    with store.reading() as session:
        names = set(inspect(session.connection()).get_table_names())
    store.close()
    return names - {"alembic_version"}


def differences(url: str) -> list[object]:
    store = open_store(url)
    with store.reading() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        found = list(compare_metadata(context, Base.metadata))
    store.close()
    return found


def fill(url: str, records: int) -> None:
    store = open_store(url)
    with store.writing() as session:
        cursor = facts.open_cursor(session, "bundled", "boot", NOW)
        many = tuple(step(seq, groups=(group(),)) for seq in range(1, records + 1))
        facts.add_page(session, cursor, page("boot", many))
    store.close()


def test_upgrading_from_nothing_equals_the_tables(empty_database: str):
    assert migrating.current(empty_database) is None

    migrating.upgrade(empty_database)

    assert migrating.current(empty_database) == migrating.head()
    assert tables(empty_database) == set(Base.metadata.tables)
    assert differences(empty_database) == []


def test_upgrading_again_changes_nothing(empty_database: str):
    migrating.upgrade(empty_database)
    fill(empty_database, 3)

    migrating.upgrade(empty_database)

    store = open_store(empty_database)
    with store.reading() as session:
        assert facts.totals(session, "bundled").stored == 3
    store.close()


def test_downgrading_to_base_leaves_no_table(empty_database: str):
    migrating.upgrade(empty_database)
    fill(empty_database, 3)

    migrating.downgrade(empty_database, "base")

    assert tables(empty_database) == set()
    migrating.upgrade(empty_database)
    assert differences(empty_database) == []


def test_two_upgrades_started_together_both_end_well(empty_database: str):
    """Field case F20."""
    gate = threading.Barrier(3)
    failures: list[BaseException] = []

    def upgrade() -> None:
        gate.wait()
        try:
            migrating.upgrade(empty_database)
        except BaseException as error:  # noqa: BLE001, reported by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=upgrade) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert migrating.current(empty_database) == migrating.head()


def test_rebuilding_a_parent_table_keeps_its_children(empty_database: str):
    """Field case F20: with foreign keys on, SQLite deletes the children of a rebuilt table."""
    migrating.upgrade(empty_database)
    fill(empty_database, 5)

    with migrating.migrating_connection(empty_database) as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("CREATE TABLE rebuilt AS SELECT * FROM cursors")
            connection.exec_driver_sql("DROP TABLE cursors")
            connection.exec_driver_sql("ALTER TABLE rebuilt RENAME TO cursors")
            connection.exec_driver_sql("CREATE UNIQUE INDEX rebuilt_id ON cursors (id)")

    store = open_store(empty_database)
    with store.reading() as session:
        assert facts.totals(session, "bundled").stored == 5
    store.close()


OLD_ROWS = (
    "INSERT INTO cursors (id, engine, journal, boot_id, last_seq, lost, deleted, created_at)"
    " VALUES (1, 'bundled', 'steps', 'boot', 9, 0, 0, '2026-11-30 12:00:00+00:00')",
    "INSERT INTO settings (key, label, body) VALUES ('k', 'off', '{}')",
    "INSERT INTO windows (id, engine, start_s, end_s, created_at, body)"
    " VALUES (1, 'bundled', 0, 60, '2026-11-30 12:00:00+00:00', '{}')",
    *(
        'INSERT INTO observations (id, "window", route, setting, load, evidence, passes,'
        " verify_passes, drafted, accepted, tokens, attempts, accepts)"
        f" VALUES ({number}, 1, 'chat', 'k', '1', 'live', 1, 0, 0, 0, 1, '[]', '[]')"
        for number in (1, 2)
    ),
    "INSERT INTO request_traces (cursor, seq, engine, at_s, request_id, route, setting, load,"
    " is_shadow, temperature, prompt_tokens, completion_tokens, passes, drafted, accepted, queue_s,"
    " duration_s, chunk_gaps, finish_reason)"
    " VALUES (1, 1, 'bundled', 5, 'a', 'chat', 'k', '1', false, 0, 1, 1, 1, 0, 0, 0, 1, '{}', 'x')",
)


def test_rows_of_the_first_revision_live_through_an_upgrade_and_back(empty_database: str):
    """Field case F20: parents and children keep their number."""
    migrating.upgrade(empty_database, "0001")
    with migrating.migrating_connection(empty_database) as connection:
        for statement in OLD_ROWS:
            connection.exec_driver_sql(statement)

    def counted() -> list[object]:
        with migrating.migrating_connection(empty_database) as connection:
            return [
                connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar()
                for table in ("cursors", "windows", "observations", "request_traces")
            ]

    migrating.upgrade(empty_database)
    assert counted() == [1, 1, 2, 1]
    with migrating.migrating_connection(empty_database) as connection:
        trace = "SELECT has_grammar, attempts, accepts FROM request_traces"
        assert tuple(connection.exec_driver_sql(trace).one()) == (False, "[]", "[]")
        sampled = connection.exec_driver_sql("SELECT is_greedy FROM observations").scalars()
        assert list(sampled) == [None, None]

    migrating.downgrade(empty_database, "0001")
    assert counted() == [1, 1, 2, 1]
    assert "decisions" not in tables(empty_database)


VALUES = {int: 1, float: 1.0, str: "1", bool: False, datetime: NOW}


def fill_every_table(url: str) -> dict[str, int]:
    """Put a row into each table, all with the number 1; return how many rows each has."""
    store = open_store(url)
    with store.writing() as session:
        found = MetaData()
        found.reflect(session.connection())
        for table in found.sorted_tables:
            if table.name != "alembic_version":
                values = {one.name: VALUES[one.type.python_type] for one in table.columns}
                session.execute(insert(table).values(**values))
    store.close()
    return num_rows(url)


def num_rows(url: str) -> dict[str, int]:
    store = open_store(url)
    with store.reading() as session:
        found = MetaData()
        found.reflect(session.connection())
        counts = {
            table.name: session.scalars(select(func.count()).select_from(table)).one()
            for table in found.sorted_tables
        }
    store.close()
    return counts


@pytest.mark.parametrize("revision", ["0001", "0002"])
def test_a_row_of_every_old_table_lives_through_an_upgrade_and_back(
    empty_database: str, revision: str
):
    migrating.upgrade(empty_database, revision)
    before = fill_every_table(empty_database)
    assert set(before.values()) == {1}

    migrating.upgrade(empty_database)

    after = num_rows(empty_database)
    assert {name: after[name] for name in before} == before
    store = open_store(empty_database)
    with store.reading() as session:
        (token,) = access.listed(session)
    store.close()
    assert token.sign_outs == 0
    migrating.downgrade(empty_database, revision)
    assert num_rows(empty_database) == before


@pytest.mark.parametrize("is_over", [False, True])
def test_a_trial_that_runs_during_the_upgrade_is_ended_by_the_service(
    empty_database: str, is_over: bool
):
    """Before, a trial was known by the reason of its plan change only."""
    migrating.upgrade(empty_database, "0002")
    place = ("chat", load_level_of(1))
    trial = Plan(entries=(PlanEntry(route=place[0], load=place[1], setting=DRAFT_3),))
    whys = ["trial of draft_model k=3 on chat at load 1 until 700"]
    whys += ["end of the trial of draft_model k=3 on chat at load 1: its time is over"] * is_over
    store = open_store(empty_database)
    with store.writing() as session:
        arms.remember(session, (OFF, DRAFT_3))
        for why in whys:
            row = {
                "engine": "bundled",
                "at": NOW,
                "who": "ann",
                "why": why,
                "outcome": Outcome.APPLIED,
                "digest": trial.digest,
                "before_digest": Plan().digest,
                "body": trial.to_dict(),
                "before": Plan().to_dict(),
            }
            insert_rows(session, PlanRow, [row])

    migrating.upgrade(empty_database)

    with store.reading() as session:
        found = trials.open_on(session, "bundled")
    store.close()
    if is_over:
        assert found is None
    else:
        assert found is not None
        assert (found.route, found.load, found.change, found.most_tokens) == (*place, 1, 0)
        assert (found.setting, found.former, found.end_s) == (DRAFT_3, OFF, 700.0)


def test_a_migration_that_would_orphan_rows_changes_nothing(tmp_path: Path):
    """Only SQLite needs this: PostgreSQL refuses by itself."""
    url = f"sqlite:///{tmp_path / 'orphans.db'}"
    migrating.upgrade(url)
    fill(url, 2)

    def orphan() -> None:
        with migrating.migrating_connection(url) as connection:
            connection.exec_driver_sql("DELETE FROM cursors")

    with pytest.raises(StoreConflict, match="nothing was changed"):
        orphan()

    store = open_store(url)
    with store.reading() as session:
        assert facts.totals(session, "bundled").boots == 1
    store.close()


def test_a_store_without_tables_names_the_fix(empty_database: str):
    store = open_store(empty_database)
    with pytest.raises(SchemaOutdated, match=r"revision none.*spectuner db upgrade"):
        migrating.require_head(store)
    with pytest.raises(SchemaOutdated, match="spectuner db upgrade"), store.reading() as session:
        facts.engines(session)
    store.close()


def test_a_store_of_a_newer_program_is_left_alone(empty_database: str):
    migrating.upgrade(empty_database)
    store = open_store(empty_database)
    with store.writing() as session:
        session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(SchemaOutdated, match="install the newer spectuner"):
        migrating.require_head(store)
    with pytest.raises(BadRequest, match="9999"):
        migrating.upgrade(empty_database)
    store.close()


def test_an_unknown_revision_is_named(empty_database: str):
    with pytest.raises(BadRequest, match="'0815' cannot be reached"):
        migrating.upgrade(empty_database, "0815")

    assert migrating.current(empty_database) is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "cannot be read"),
        ("mysql://localhost/x", "mysql"),
        ("sqlite://", "needs a file"),
        ("sqlite:////nowhere/at/all/x.db", "does not exist"),
    ],
)
def test_a_database_url_that_cannot_work_is_one_clear_line(url: str, message: str):
    with pytest.raises(BadRequest, match=message) as caught:
        migrating.upgrade(url)

    assert "\n" not in str(caught.value)


def test_an_interrupt_in_the_middle_of_a_migration_is_kept_for_its_end(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'interrupted.db'}"

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    event.listen(Engine, "before_cursor_execute", interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            migrating.upgrade(url)
    finally:
        event.remove(Engine, "before_cursor_execute", interrupt)
        signal.signal(signal.SIGINT, before)

    assert migrating.current(url) == migrating.head()


def test_first_openers_at_once_wait_for_each_other(tmp_path: Path):
    """SQLite refuses a second switch to WAL at once, whatever the busy timeout."""
    failures: list[BaseException] = []

    def open_it(gate: threading.Barrier, url: str) -> None:
        gate.wait()
        store = open_store(url)
        try:
            with store.migrating() as connection:
                connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS one (x INTEGER)")
        except BaseException as error:  # noqa: BLE001, reported by the test's own thread
            failures.append(error)
        store.close()

    for number in range(40):
        gate, url = threading.Barrier(4), f"sqlite:///{tmp_path}/{number}.db"
        threads = [threading.Thread(target=open_it, args=(gate, url)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert failures == []
