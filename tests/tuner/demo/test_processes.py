import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner.demo.errors import ChildFailed, PortInUse
from tuner.demo.processes import SPECTUNER, Child, last_line, require_free_port, start_child

PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-m", "tuner.demo.leash", str(os.getpid()), "/bin/sleep", "60"],
    start_new_session=True,
)
print(child.pid, flush=True)
time.sleep(60)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_for(condition: object, timeout_s: float = 60) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def child_of(code: str, log: Path) -> Child:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=output, stderr=output, start_new_session=True
        )
    return Child(name="engine", process=process, log=log)


def test_a_leashed_child_dies_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child_pid = int(parent.stdout.readline())
    assert wait_for(lambda: Path(f"/proc/{child_pid}/comm").read_text().strip() == "sleep")

    parent.send_signal(signal.SIGKILL)
    parent.communicate()

    assert wait_for(lambda: not is_alive(child_pid))


def test_a_child_whose_parent_died_before_the_leash_does_not_start() -> None:
    nobody = subprocess.Popen([sys.executable, "-c", ""])
    nobody.wait()
    command = [sys.executable, "-m", "tuner.demo.leash", str(nobody.pid), "/bin/sleep", "60"]

    assert subprocess.run(command, timeout=120, check=False).returncode == 1


def test_a_child_runs_spectuner_in_its_own_group_with_its_output_in_the_log(
    tmp_path: Path,
) -> None:
    child = start_child("theory", [*SPECTUNER, "theory", "--alpha", "0.8"], {}, tmp_path / "log")
    assert os.getpgid(child.process.pid) == child.process.pid
    assert child.process.wait(120) == 0

    assert "Speedup" in child.log.read_text()


def test_a_child_that_ended_is_reported_with_its_last_line(tmp_path: Path) -> None:
    child = start_child("engine", [*SPECTUNER, "theory", "--alpha", "7"], {}, tmp_path / "log")

    with pytest.raises(ChildFailed, match=r"engine ended with exit code 2.*alpha must be 0 to 1"):
        child.wait_until_healthy("http://127.0.0.1:9", timeout_s=120)


def test_a_child_that_never_answers_is_given_up(tmp_path: Path) -> None:
    child = child_of("import time; time.sleep(60)", tmp_path / "log")
    try:
        with pytest.raises(ChildFailed, match="did not answer"):
            child.wait_until_healthy("http://127.0.0.1:9", timeout_s=0.5)
    finally:
        assert child.stop()


def test_a_child_that_ignores_the_request_to_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.demo.processes._STOP_PATIENCE_S", 0.3)
    child = child_of(STUBBORN, tmp_path / "log")
    assert wait_for(lambda: child.log.read_text() == "ready\n")

    assert child.stop() is False
    assert child.process.poll() == -signal.SIGKILL
    assert child.stop() is True


def test_a_taken_port_is_named_with_the_flag_that_chooses_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"port {port} .*--engine-port PORT"):
            require_free_port("127.0.0.1", port, "--engine-port")
    require_free_port("127.0.0.1", port, "--engine-port")


def test_the_last_line_of_an_empty_log_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n \n")

    assert last_line(log) == "it said nothing"
