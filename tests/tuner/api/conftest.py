from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import uvicorn

from tests.tuner.api.console_seeding import ENGINE, fill, utc_now
from tests.tuner.api.served import Served, parts_of, served_on
from tuner.api.http import create_app
from tuner.settings import load_settings
from tuner.store import Store, migrating, open_store


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an empty and a full database, made once and copied for each test."""
    folder = tmp_path_factory.mktemp("templates")
    for name in ("empty", "full"):
        url = f"sqlite:///{folder / name}.db"
        migrating.upgrade(url)
        made = open_store(url)
        if name == "full":
            fill(made, utc_now())
        made.close()
    return folder


@pytest.fixture
def store(tmp_path: Path, templates: Path) -> Iterator[Store]:
    yield from opened_copy(templates / "empty.db", tmp_path)


@pytest.fixture
def full_store(tmp_path: Path, templates: Path) -> Iterator[Store]:
    yield from opened_copy(templates / "full.db", tmp_path)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    with ExitStack() as running:

        def start(store: Store, **overrides: object) -> Served:
            return running.enter_context(serving(store, tmp_path, **overrides))

        yield start


@pytest.fixture(scope="module")
def shared(templates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A console with a full store for tests that change nothing."""
    folder = tmp_path_factory.mktemp("shared")
    for store in opened_copy(templates / "full.db", folder):
        with serving(store, folder) as served:
            yield served


@pytest.fixture
def served(serve: Callable[[Store], Served], full_store: Store) -> Served:
    return serve(full_store)


def opened_copy(template: Path, folder: Path) -> Iterator[Store]:
    shutil.copy(template, folder / "spectuner.db")
    opened = open_store(f"sqlite:///{folder / 'spectuner.db'}")
    yield opened
    opened.close()


@contextmanager
def serving(store: Store, folder: Path, **overrides: object) -> Iterator[Served]:
    listener = socket.create_server(("127.0.0.1", 0))
    settings = load_settings(
        environ={},
        port=listener.getsockname()[1],
        data_dir=folder,
        engine_name=ENGINE,
        **{"stale_after_s": 3600, **overrides},
    )
    served = served_on(store, settings)
    app = create_app(parts_of(store, settings, served.review))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield served
    server.should_exit = True
    thread.join(timeout=60)
