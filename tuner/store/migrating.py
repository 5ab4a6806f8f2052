"""Bringing a database to a revision, safely when two programs start together.

PostgreSQL waits on an advisory lock, SQLite on its write lock; either way the second finds the
work done. Foreign keys are off on SQLite meanwhile, because rebuilding a parent table would
delete its children, and are checked before the commit.
"""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

import migrations
from tuner.errors import BadRequest, SchemaOutdated, StoreConflict
from tuner.store.database import Store, open_store

_LOCK_NUMBER = 7_306_621


def upgrade(url: str, revision: str = "head") -> None:
    """Bring a database up to a revision; nothing happens where it is there.

    Raises:
        BadRequest: the URL or the revision is unknown.
        StoreUnavailable: the database does not answer or stays locked.
    """
    _run(url, revision, command.upgrade)


def downgrade(url: str, revision: str) -> None:
    """Take a database down to a revision; ``base`` removes every table with its rows.

    Raises:
        BadRequest: the URL or the revision is unknown.
        StoreUnavailable: the database does not answer or stays locked.
    """
    _run(url, revision, command.downgrade)


def current(url: str) -> str | None:
    """Return the revision a database is at; None for an empty one."""
    store = open_store(url)
    try:
        return revision_of(store)
    finally:
        store.close()


def head() -> str:
    """Return the revision this program was written for."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def revision_of(store: Store) -> str | None:
    """Return the revision of an open store; None for an empty database."""
    with store.reading() as session:
        return MigrationContext.configure(session.connection()).get_current_revision()


def require_head(store: Store) -> None:
    """Make sure that the tables are those this program was written for.

    Raises:
        SchemaOutdated: they are older or newer; the message says what to do.
    """
    found, wanted = revision_of(store), head()
    if found == wanted:
        return
    if found is None or _is_known(found):
        fix = "run `spectuner db upgrade`"
    else:
        fix = "install the newer spectuner that made it"
    raise SchemaOutdated(
        f"database {store.url} is at revision {found or 'none'}, needed is {wanted}; {fix}"
    )


@contextmanager
def migrating_connection(url: str) -> Iterator[Connection]:
    """Give a connection in one transaction that keeps every other migration waiting."""
    store = open_store(url)
    try:
        with store.migrating() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})")
            yield connection
            _check_children(connection, store.url)
    finally:
        store.close()


def _run(url: str, revision: str, act: Callable[[Config, str], None]) -> None:
    config = _config()
    with _undisturbed(), migrating_connection(url) as connection:
        config.attributes["connection"] = connection
        try:
            act(config, revision)
        except CommandError as error:
            raise BadRequest(f"revision {revision!r} cannot be reached: {error}") from error


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait for the end: a callback of the database library could swallow it midway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    for number in waiting[:1]:
        signal.raise_signal(number)


def _config() -> Config:
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    return config


def _is_known(revision: str) -> bool:
    scripts = ScriptDirectory.from_config(_config())
    return revision in {script.revision for script in scripts.walk_revisions()}


def _check_children(connection: Connection, url: str) -> None:
    if connection.dialect.name != "sqlite":
        return
    orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    if orphans:
        raise StoreConflict(
            f"migrating {url} would leave {len(orphans)} rows without their parent, the first in "
            f"table {orphans[0][0]}; nothing was changed"
        )
