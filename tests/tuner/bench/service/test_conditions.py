import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner.bench.service.conditions import Condition, neighbours

PATIENCE_S = 600
"""How long an event is waited for: far longer than it takes, on any machine."""

KEEPING = """
import sys, time
from pathlib import Path
from tuner.bench.service.conditions import Condition, neighbours
with neighbours(Condition.BOTH, Path(sys.argv[1])) as burners:
    print(*(burner.process.pid for burner in burners), flush=True)
    time.sleep(600)
"""


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(("condition", "count"), [("quiet", 0), ("neighbour", 1), ("both", 2)])
def test_a_condition_has_its_neighbours_and_they_are_gone_afterwards(
    condition: str, count: int, tmp_path: Path
) -> None:
    with neighbours(Condition(condition), tmp_path) as burners:
        pids = [burner.process.pid for burner in burners]
        deadline = time.monotonic() + PATIENCE_S
        while not all(cpu_s(pid) > 0.2 for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    assert len(pids) == count
    assert all(is_gone(pid) for pid in pids)


def test_neighbours_do_not_outlive_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KEEPING, str(tmp_path)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.communicate()

    assert len(pids) == 2
    wait_until_gone(*pids)
