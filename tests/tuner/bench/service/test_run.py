import io
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from tests.fixtures.demo_traffic import write_traffic
from tests.tuner.engine.model.tiny_gguf import write_tiny_gguf
from tuner.bench.service.conditions import Condition
from tuner.bench.service.options import ServiceBenchOptions
from tuner.bench.service.report import ServiceReport
from tuner.bench.service.run import bench_service
from tuner.cli.options import parse_setting
from tuner.cli.output import finite

pytestmark = pytest.mark.slow

BURNER = "tuner.bench.service.burner"
ROUTES = {"chat": 0.7, "code_edit": 0, "rag_answer": 0.2}
ARMS = {"off", "suffix k=8", "best_fixed", "reviewed"}
INTERVAL = {"low", "mean", "high"}
CALM = {
    "coverage",
    "median_error",
    "above_tokens_per_pass",
    "reversals",
    "recommendations_per_hour",
}
CONDITION = {
    "name",
    "levels",
    "surge",
    "overall",
    "plan",
    "approved",
    "refused",
    "blocks",
    "blocks_left_out",
    "failed_requests",
}
PREDICTION = {
    "condition",
    "route",
    "load",
    "setting",
    "tokens_per_pass",
    "predicted",
    "realised",
    "is_inside",
}


def burners() -> set[int]:
    """Return the neighbours that this process started and that still run."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_text().split("\0")
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if BURNER in words and parent == os.getpid():
            found.add(int(place.name))
    return found


@contextmanager
def watching_burners() -> Iterator[set[int]]:
    """Collect the neighbours that run meanwhile."""
    seen, over = set[int](), threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            seen.update(burners())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[ServiceReport, str, set[int]]:
    """One short run beside a neighbour: its report, what it printed, and the neighbours seen."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_gguf(folder / "tiny.gguf")
    write_traffic(folder / "traffic.jsonl", ROUTES)
    options = ServiceBenchOptions(
        conditions=(Condition.NEIGHBOUR,),
        levels=(1, 4),
        rounds=2,
        block_s=3.0,
        settle_s=1.0,
        learn_minutes=0.4,
        gate_minutes=0.4,
        steady_minutes=0.2,
        arms=("off", "fixed", "reviewed"),
        fixed=(parse_setting("suffix:8"),),
        traffic=folder / "traffic.jsonl",
        port=free_port(),
        engine_port=free_port(),
        model=str(folder / "tiny.gguf"),
        draft=str(folder / "tiny.gguf"),
        max_rows=8,
    )
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, watching_burners() as seen:
        patched.setenv("OMP_NUM_THREADS", "1")
        patched.setenv("SPECTUNER_CACHE_DIR", str(folder / "cache"))
        report = bench_service(options, Console(file=printed, width=200))
    return report, printed.getvalue(), seen


def test_every_arm_was_really_in_force_in_its_blocks(
    short_run: tuple[ServiceReport, str, set[int]],
) -> None:
    (condition,) = short_run[0].conditions
    digests = {arm.name: arm.plan.digest for arm in condition.run.arms}

    assert set(digests) == ARMS - {"best_fixed"}
    assert len(condition.run.blocks) == 2 * 3 * len(digests)
    for block in condition.run.blocks:
        own = digests[block.stretch.arm]
        assert block.stretch.plan_digest == own
        assert own in block.digests
        assert block.digests <= set(digests.values())
    assert digests["off"] != digests["suffix k=8"]


def test_the_figures_have_the_keys_that_are_documented(
    short_run: tuple[ServiceReport, str, set[int]],
) -> None:
    found = json.loads(json.dumps(finite(short_run[0].to_dict()), allow_nan=False))

    assert set(found) == {"conditions", "predictions"} | CALM
    (condition,) = found["conditions"]
    assert set(condition) == CONDITION | CALM
    assert condition["name"] == "neighbour"
    assert [level["concurrency"] for level in condition["levels"]] == [1, 4]
    for level in (*condition["levels"], condition["surge"]):
        assert set(level) == {"concurrency", "tokens_per_s", "over_off"}
        for figures in (level["tokens_per_s"], level["over_off"]):
            assert set(figures) == ARMS
            for interval in figures.values():
                assert set(interval) == INTERVAL
                assert 0 < interval["low"] <= interval["mean"] <= interval["high"]
    assert condition["failed_requests"] == 0
    for prediction in found["predictions"]:
        assert set(prediction) == PREDICTION


def test_the_neighbours_ran_and_are_gone(
    short_run: tuple[ServiceReport, str, set[int]],
) -> None:
    assert len(short_run[2]) > 1
    assert burners() == set()


def test_it_says_what_it_does(short_run: tuple[ServiceReport, str, set[int]]) -> None:
    printed = short_run[1]

    for words in ("Condition neighbour", "Learning, quiet", "Approved: ", "Measured round 2 of 2"):
        assert words in printed
