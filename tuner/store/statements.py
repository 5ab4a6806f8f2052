"""Writing many rows at once, reading part of a value, locks by name: on both databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import (
    ColumnElement,
    Delete,
    Text,
    Update,
    cast,
    func,
    insert,
    literal,
    select,
    type_coerce,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import InstrumentedAttribute, Session

from tuner.store.columns import Json
from tuner.store.schema import Base


def insert_rows(session: Session, table: type[Base], rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows, given as column name to value; none is fine."""
    if rows:
        session.connection().execute(insert(table), [dict(row) for row in rows])


def insert_missing(
    session: Session, table: type[Base], rows: Sequence[Mapping[str, object]]
) -> None:
    """Insert those rows whose unique keys are not there yet."""
    for row in rows:
        insert_if_missing(session, table, row)


def insert_if_missing(session: Session, table: type[Base], row: Mapping[str, object]) -> bool:
    """Insert a row unless its unique key is there; return whether it was inserted."""
    session.flush()
    connection = session.connection()
    is_postgres = connection.dialect.name == "postgresql"
    made = postgresql.insert(table) if is_postgres else sqlite.insert(table)
    statement = made.values(**row).on_conflict_do_nothing().returning(literal(1))
    return connection.execute(statement).first() is not None


def changed_rows(session: Session, statement: Update | Delete) -> int:
    """Run an UPDATE or DELETE and return how many rows it touched."""
    session.flush()
    return session.connection().execute(statement).rowcount


def json_part(
    session: Session, column: InstrumentedAttribute[object], key: str
) -> ColumnElement[object]:
    """Return one entry of a column's JSON object, which the database cuts out; None without it."""
    if session.connection().dialect.name == "postgresql":
        part = cast(cast(column, postgresql.JSON)[key], Text)
        return type_coerce(part, Json)
    return type_coerce(func.json_extract(column, f"$.{key}"), Json)


def lock_by_name(session: Session, name: str) -> None:
    """Make writers of one thing wait for each other until the transaction ends.

    SQLite has one writer anyway; PostgreSQL gets an advisory lock.
    """
    if session.connection().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))
