"""Opening a database and its transactions: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from sqlalchemy import Connection, Dialect, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from tuner.errors import BadRequest, SchemaOutdated, StoreConflict, StoreUnavailable
from tuner.store import leases
from tuner.store.leases import Fence

BUSY_TIMEOUT_MS = 15_000
_BUSY_PAUSE_S = 0.02
POOL: Mapping[str, int] = MappingProxyType({"pool_size": 8, "max_overflow": 40})
"""Enough connections for every job and every thread of the console at once."""

_BEGIN = "spectuner_begin"
_PASSWORD = re.compile(r"(?<=:)[^:@/]*(?=@)|(?<=//).*(?=@)")
_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A database with the tables of ``tuner.store.schema``.

    Attributes:
        engine: SQLAlchemy's engine; only this package uses it.
        url: where it is, password hidden.
        fence: lease that every write must still hold; None for writes that anybody may do.
    """

    engine: Engine
    url: str
    fence: Fence | None = None

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Give a session that sees one snapshot.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        options: dict[str, object] = {_BEGIN: "DEFERRED"}
        if self.engine.dialect.name == "postgresql":
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with (
            self._errors_named(),
            self.engine.connect() as connection,
            Session(connection.execution_options(**options)) as session,
        ):
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Give a session in one transaction: committed at the end, rolled back on an exception.

        Raises:
            StoreUnavailable: the database does not answer or stays locked.
            StoreConflict: a row contradicts another.
            LeaseLost: the fence's lease is held by another service.
        """
        with self._errors_named(), self.engine.connect() as connection:
            writer = connection.execution_options(**{_BEGIN: "IMMEDIATE"})
            with Session(writer) as session, session.begin():
                if self.fence is not None:
                    leases.require(session, self.fence)
                yield session

    def fenced(self, fence: Fence) -> Store:
        """Return the same store for writes that need a lease."""
        return replace(self, fence=fence)

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """Give a connection in one transaction with foreign keys off (SQLite), for migrations only.

        Raises:
            StoreUnavailable: the database does not answer or stays locked.
        """
        with self._errors_named(), self.engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                _set_foreign_keys(connection, False)
            try:
                writer = connection.execution_options(**{_BEGIN: "IMMEDIATE"})
                with writer.begin():
                    yield writer
            finally:
                if connection.dialect.name == "sqlite":
                    _set_foreign_keys(connection, True)

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except (OperationalError, ProgrammingError) as error:
            if _is_about_tables(error):
                raise SchemaOutdated(
                    f"database {self.url}: {_first_line(error)}; run `spectuner db upgrade`"
                ) from error
            raise StoreUnavailable(
                f"database {self.url} did not do its part: {_first_line(error)}; "
                "check that it runs and is writable, then `spectuner db upgrade`"
            ) from error
        except PoolTimeout as error:
            raise StoreUnavailable(
                f"database {self.url} has no free connection: {error}; try again"
            ) from error
        except (IntegrityError, DataError) as error:
            raise StoreConflict(f"database {self.url} refused: {_first_line(error)}") from error
        except DatabaseError as error:
            raise BadRequest(
                f"database {self.url} cannot be used: {_first_line(error)}; name another one in "
                "SPECTUNER_DATABASE_URL, or put back a copy of this one"
            ) from error
        except StatementError as error:
            raise StoreConflict(f"a row for {self.url} cannot be stored: {error.orig}") from error

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def open_store(url: str) -> Store:
    """Open a database by URL, such as ``sqlite:////var/lib/spectuner.db``.

    A PostgreSQL URL without a driver is opened with psycopg. Tables are made by
    ``tuner.store.migrating.upgrade``, not here.

    Raises:
        BadRequest: the URL cannot be read or names a database that is not supported.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        engine = _sqlite_engine(parsed)
    else:
        engine = create_engine(parsed, pool_pre_ping=True, **POOL)
    return Store(engine=engine, url=parsed.render_as_string(hide_password=True))


def parse_url(url: str) -> URL:
    """Read a database URL and choose the driver.

    Raises:
        BadRequest: the URL cannot be read or names a database that is not supported.
    """
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
        parsed.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        is_port = not isinstance(error, ArgumentError | NoSuchModuleError)
        reason = "its port is not a number" if is_port else str(error)
        raise BadRequest(
            f"database URL {_PASSWORD.sub('***', url)!r} cannot be read: {reason}; write it like "
            "sqlite:////var/lib/spectuner.db or postgresql://user:password@host:5432/name"
        ) from error
    if backend not in ("sqlite", "postgresql"):
        raise BadRequest(f"database {backend!r} is not supported; use sqlite or postgresql")
    return parsed.set(drivername="postgresql+psycopg") if backend == "postgresql" else parsed


def _sqlite_engine(url: URL) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise BadRequest("an SQLite database needs a file, such as sqlite:////tmp/spectuner.db")
    folder = Path(str(url.database)).parent
    if not folder.is_dir():
        raise BadRequest(f"folder {folder} of the database does not exist; create it first")
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}, **POOL)
    event.listen(engine, "do_connect", _create_for_owner)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _create_for_owner(
    _dialect: Dialect, _entry: ConnectionPoolEntry, place: list[str], _options: dict[str, object]
) -> None:
    """Make a new file readable by its owner only: captured prompts lie in it.

    A file that is there is not even opened; closing it would end SQLite's locks on it.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    if not place[0].startswith("file:"):
        with suppress(OSError):  # it exists, or SQLite itself says why it cannot be made
            os.close(os.open(place[0], flags, _OWNER_ONLY))


def _prepare_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    """Let SQLAlchemy's begin event start transactions, and set what holds per connection."""
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    _switch_to_wal(connection)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Put the file into WAL mode, where it stays.

    SQLite refuses at once, whatever the busy timeout, when another first opener does the same.
    """
    deadline_s = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(_BUSY_PAUSE_S)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get(_BEGIN, "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {mode}")


def _set_foreign_keys(connection: Connection, is_on: bool) -> None:
    """Switch outside of a transaction; within one SQLite ignores it."""
    driver = connection.connection.driver_connection
    if isinstance(driver, sqlite3.Connection):
        driver.execute(f"PRAGMA foreign_keys={'ON' if is_on else 'OFF'}")


def _is_about_tables(error: DBAPIError) -> bool:
    return isinstance(error, ProgrammingError) or str(error.orig).startswith("no such ")


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0]
