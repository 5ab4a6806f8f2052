import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from collectors.records import Plan
from tests.fixtures.demo_traffic import write_traffic
from tests.tuner.engine.model.tiny_gguf import write_tiny_gguf
from tuner.store import access, open_store, plans

pytestmark = pytest.mark.slow

PATIENCE_S = 600
"""How long an event is waited for: far longer than it takes, on any machine."""

ROUTES = {"chat": 0.7, "code_edit": 0, "json_extract": 0, "rag_answer": 0.2, "story": 0.9}
CELL_KEYS = {
    "route",
    "load",
    "requests",
    "drafted",
    "accepted",
    "passes",
    "tokens",
    "acceptance_rate",
    "acceptance_length",
    "tokens_per_pass",
    "setting",
    "recommended",
    "route_speed",
    "engine_total",
}


@dataclass
class Demo:
    """A demo under way."""

    process: subprocess.Popen[str]
    folder: Path
    port: int
    engine_port: int

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    def children(self) -> dict[str, int]:
        """Return the process id of each child by the command it runs."""
        found = {}
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                words = dict(
                    line.split(":\t", 1)
                    for line in status.read_text().splitlines()
                    if ":\t" in line
                )
                command = (status.parent / "cmdline").read_text().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words.get("PPid") == str(self.process.pid):
                found.update(
                    {name: int(words["Pid"]) for name in ("engine", "serve") if name in command}
                )
        return found


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_gguf(folder / "tiny.gguf")
    write_traffic(folder / "traffic.jsonl", ROUTES)
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(tiny: Path, folder: Path, *arguments: str) -> Iterator[Demo]:
    port, engine_port = free_port(), free_port()
    command = [sys.executable, "-m", "tuner", "demo", *arguments]
    command += ["--port", str(port), "--engine-port", str(engine_port), "--data-dir", str(folder)]
    command += ["--model", str(tiny / "tiny.gguf"), "--draft", str(tiny / "tiny.gguf")]
    command += ["--traffic", str(tiny / "traffic.jsonl"), "--max-rows", "8"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SPECTUNER_CACHE_DIR": str(tiny / "cache")}
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, text=True
        )
    demo = Demo(process=process, folder=folder, port=port, engine_port=engine_port)
    try:
        yield demo
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], demo: Demo) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    pytest.fail(f"not within {PATIENCE_S} s; the demo said:\n{demo.output}")


def get(url: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.get(url, headers=headers, trust_env=False, timeout=PATIENCE_S)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_an_unattended_demo_whose_service_is_killed_loses_nothing_and_sums_up(
    tiny: Path, tmp_path: Path
) -> None:
    figures = tmp_path / "figures.json"
    arguments = ("--minutes", "0.5", "--exit", "--json", str(figures))
    with running(tiny, tmp_path, *arguments) as demo:
        wait_for(lambda: "Phase Monday" in demo.output, demo)
        os.kill(demo.children()["serve"], signal.SIGKILL)
        code = demo.process.wait(PATIENCE_S)

    assert code == 0, demo.output
    assert "The service died (-9); starting it again" in demo.output
    read = json.loads(figures.read_text())
    assert set(read) == {"cells", "recommendations", "replays", "divergence", "steps"}
    assert all(set(cell) == CELL_KEYS for cell in read["cells"])
    assert {cell["route"] for cell in read["cells"]} == set(ROUTES)
    assert read["steps"]["journalled"] == read["steps"]["stored"] > 100
    assert read["steps"]["lost"] == 0
    assert sum(cell["requests"] for cell in read["cells"]) > 10
    assert any(cell["drafted"] > 0 for cell in read["cells"])
    divergence = read["divergence"]
    assert set(divergence) == {
        "pairs",
        "identical",
        "near_tie",
        "suspicious",
        "control_identical",
    }
    assert divergence["pairs"] > 0
    assert divergence["suspicious"] == 0
    for title in ("Speculation by route and load", "Shadow replay", "Seen by the clients"):
        assert title in demo.output


def test_ctrl_c_stops_all_three_sums_up_and_voids_the_sign_in_link(
    tiny: Path, tmp_path: Path
) -> None:
    with running(tiny, tmp_path) as demo:
        wait_for(lambda: "Phase quiet" in demo.output, demo)
        children = demo.children()
        link = demo.output.split("sign in: ")[1].split()[0]
        secret = link.split("token=")[1]
        answer = get(
            f"http://127.0.0.1:{demo.port}/api/v1/overview",
            headers={"authorization": f"Bearer {secret}"},
        )
        wait_for(lambda: "Exploration" in demo.output, demo)
        plan = f"http://127.0.0.1:{demo.engine_port}/spec/plan"
        wait_for(lambda: get(plan).json()["entries"] != [], demo)
        demo.process.send_signal(signal.SIGINT)
        code = demo.process.wait(PATIENCE_S)

    assert link.startswith(f"http://127.0.0.1:{demo.port}/sign-in?token=")
    assert answer.status_code == 200
    assert code == 0, demo.output
    assert set(children) == {"engine", "serve"}
    assert all(is_gone(pid) for pid in children.values())
    assert "0 lost" in demo.output
    assert "Traceback" not in demo.output
    assert _is_void(secret, tmp_path)
    assert _last_plan(tmp_path).entries == ()


def _last_plan(folder: Path) -> Plan:
    store = open_store(f"sqlite:///{folder / 'spectuner.db'}")
    try:
        with store.reading() as session:
            change = plans.latest_applied(session, "bundled")
    finally:
        store.close()
    assert change is not None
    return change.plan


def _is_void(secret: str, folder: Path) -> bool:
    store = open_store(f"sqlite:///{folder / 'spectuner.db'}")
    try:
        with store.reading() as session:
            return access.by_secret(session, secret, datetime.now(UTC)) is None
    finally:
        store.close()


def test_the_children_do_not_outlive_a_demo_that_is_killed(tiny: Path, tmp_path: Path) -> None:
    with running(tiny, tmp_path) as demo:
        wait_for(lambda: "/sign-in?token=" in demo.output, demo)
        children = demo.children()
        demo.process.kill()
        demo.process.wait()

        assert len(children) == 2
        wait_for(lambda: all(is_gone(pid) for pid in children.values()), demo)


def test_a_taken_port_is_one_line_and_nothing_is_left_running(tiny: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "tuner", "demo", "--port", str(port)]
        command += ["--model", str(tiny / "tiny.gguf"), "--data-dir", str(tmp_path)]
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.splitlines() == [
        f"error: port {port} on 127.0.0.1 cannot be used (Address already in use); "
        "choose another with --port PORT"
    ]


def test_a_model_that_is_not_there_ends_the_demo_with_the_engines_own_words(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tuner", "demo", "--model", str(tmp_path / "absent")]
    command += ["--port", str(free_port()), "--engine-port", str(free_port())]
    command += ["--data-dir", str(tmp_path)]
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )

    assert answer.returncode == 1
    assert len(answer.stderr.splitlines()) == 1
    assert "absent' does not exist" in answer.stderr
