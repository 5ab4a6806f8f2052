from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from dashboards.access import Role
from tuner.api.secret import SECRET_FILE, session_secret
from tuner.api.tokens import issue
from tuner.app import bound_socket, create_service, require_current_database, utc_now
from tuner.errors import BadRequest, SchemaOutdated
from tuner.settings import Settings, load_settings
from tuner.store import migrating, open_store


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        environ={},
        data_dir=tmp_path,
        port=free_port(),
        engine_url=f"http://127.0.0.1:{free_port()}",
    )


@pytest.fixture
def service(settings: Settings) -> Iterator[str]:
    """The whole service, jobs included; there is no engine to watch."""
    migrating.upgrade(settings.database_url)
    listener = bound_socket(settings.host, settings.port)
    config = uvicorn.Config(create_service(settings), log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield settings.public_url
    server.should_exit = True
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_the_service_runs_without_an_engine_and_says_so(service: str, settings: Settings) -> None:
    store = open_store(settings.database_url)
    token = issue(store, name="Ada", role=Role.VIEWER, at=utc_now(), by="test")
    store.close()
    with httpx.Client(base_url=service, trust_env=False, timeout=60) as client:
        assert client.get("/health").json()["status"] == "ok"
        client.get("/sign-in", params={"token": token})
        assert f"never read at <code>{settings.engine_url}</code>" in client.get("/").text
        bearer = {"authorization": f"Bearer {token}"}
        deadline_s = time.monotonic() + 60
        failed: list[object] = []
        while not failed and time.monotonic() < deadline_s:
            runs = client.get("/api/v1/jobs", headers=bearer).json()["runs"]
            failed = [run for run in runs if run["outcome"] == "failed"]
        assert failed
        assert "is the engine up?" in str(failed)
        assert "is the engine up?" in client.get("/").text
        assert "spectuner_engine_stale" in client.get("/metrics", headers=bearer).text


def test_health_tells_when_the_database_is_gone(service: str, settings: Settings) -> None:
    store = open_store(settings.database_url)
    with store.writing() as session:
        session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = 'zzz'")
    store.close()
    answer = httpx.get(f"{service}/health", trust_env=False, timeout=60)
    assert answer.status_code == 503
    assert "revision zzz" in answer.json()["problem"]


def test_a_taken_port_is_named_with_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BadRequest, match=rf"127\.0\.0\.1:{port}.*--port"):
            bound_socket("127.0.0.1", port)


def test_a_database_that_was_never_upgraded_is_refused_before_anything_starts(
    settings: Settings,
) -> None:
    with pytest.raises(SchemaOutdated, match="spectuner db upgrade"):
        require_current_database(settings)


def test_the_session_secret_is_made_once_and_for_its_owner_only(settings: Settings) -> None:
    first = session_secret(settings)
    assert session_secret(settings) == first
    assert len(first) >= 32
    path = settings.data_dir / SECRET_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in settings.data_dir.iterdir()] == [SECRET_FILE]


def test_two_services_that_start_together_agree_on_the_secret(settings: Settings) -> None:
    found: list[str] = []
    gate = threading.Barrier(8)

    def read() -> None:
        gate.wait()
        found.append(session_secret(settings))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_short_session_secret_is_refused_with_the_fix(tmp_path: Path) -> None:
    settings = load_settings(environ={}, data_dir=tmp_path, session_secret="short")
    with pytest.raises(BadRequest, match="has 5 characters; give it at least 32"):
        session_secret(settings)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_the_process_ends_well_when_asked_to(settings: Settings, ending: signal.Signals) -> None:
    environment = {name: value for name, value in os.environ.items() if "SPECTUNER" not in name}
    environment["SPECTUNER_DATA_DIR"] = str(settings.data_dir)
    started = subprocess.Popen(
        [sys.executable, "-m", "tuner", "serve", "--port", str(settings.port)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s and started.poll() is None:
            try:
                if httpx.get(f"{settings.public_url}/health", trust_env=False).is_success:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        started.send_signal(ending)
        _, told = started.communicate(timeout=120)
    finally:
        started.kill()
    assert started.returncode == 0
    assert "Traceback" not in told
