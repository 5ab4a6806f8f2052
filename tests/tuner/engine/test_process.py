from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.tuner.engine.server.running import running_engine, slowed, tiny_settings
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.errors import ModelCorrupt, ModelNotFound, PortTaken, UnsafeHost
from tuner.engine.listening import bind
from tuner.engine.process import EngineProcessSettings, run_engine
from tuner.engine.settings import EngineSettings

ROOT = Path(__file__).parents[3]
_CHILD = """
import sys, time
from pathlib import Path
from tests.tuner.engine.server.running import tiny_settings
from tuner.engine.process import EngineProcessSettings, run_engine
settings = EngineProcessSettings(
    engine=tiny_settings(Path(sys.argv[1])), port=int(sys.argv[2]), drain_s=0.0
)
run_engine(settings, lambda url: print(url, flush=True))
print("ended", flush=True)
"""


@dataclass(frozen=True, slots=True)
class Child:
    process: subprocess.Popen[str]
    url: str

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; return exit code and what was written."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=240)
        return self.process.returncode, out + err


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny")


@contextmanager
def child(model: Path, *, port: int = 0) -> Iterator[Child]:
    command = [sys.executable, "-c", _CHILD, str(model), str(port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            url = f"http://127.0.0.1:{port}" if port else _first_line(process)
            yield Child(process, url)
        finally:
            if process.poll() is None:
                process.kill()


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line.startswith("http://127.0.0.1:"), line
    return line


@pytest.mark.slow
def test_while_the_model_loads_every_path_says_so_and_a_signal_ends_the_idle_engine(model: Path):
    with child(model, port=free_port()) as engine:
        statuses, loading = [], ""
        deadline = time.monotonic() + 240
        while 200 not in statuses and time.monotonic() < deadline:
            answer = get_once_it_listens(f"{engine.url}/v1/models")
            statuses.append(answer.status_code)
            loading = answer.text if answer.status_code == 503 else loading
        code, written = engine.end(signal.SIGINT)

    assert sorted(set(statuses), reverse=True) == [503, 200]
    assert "the engine is loading its model; try again in a few seconds" in loading
    assert (code, written) == (0, f"{engine.url}\nended\n")


@pytest.mark.slow
def test_a_signal_while_the_model_loads_ends_the_process(model: Path):
    with child(model, port=free_port()) as engine:
        assert get_once_it_listens(f"{engine.url}/health").status_code in (200, 503)
        code, written = engine.end(signal.SIGINT)

    assert code == 0
    assert "Traceback" not in written


@pytest.mark.slow
def test_a_stream_that_outlives_the_grace_ends_with_an_error_and_the_process_cleanly(model: Path):
    body = {"prompt": "a", "max_tokens": 250, "ignore_eos": True, "stream": True, "logprobs": 20}
    with child(model) as engine:
        with httpx.stream("POST", f"{engine.url}/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            assert '"choices"' in next(lines)
            engine.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        out, err = engine.process.communicate(timeout=240)

    assert "the engine is shutting down" in rest[-2]
    assert rest[-1] == "data: [DONE]"
    assert (out, engine.process.returncode) == ("ended\n", 0)
    assert "Traceback" not in err


def test_a_stream_that_fits_into_the_grace_ends_whole_and_new_connections_are_refused(model: Path):
    body = {"prompt": "a", "max_tokens": 60, "ignore_eos": True, "stream": True}
    with (
        running_engine(tiny_settings(model), observers=(slowed(0.01),), drain_s=60) as engine,
        engine.http.stream("POST", "/v1/completions", json=body) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        engine.server.end()
        assert is_refused_in_the_end(f"{engine.url}/health")
        rest = [line for line in lines if line]

    assert '"finish_reason":"length"' in rest[-2]
    assert rest[-1] == "data: [DONE]"


def test_a_second_signal_does_not_wait_for_open_requests(model: Path):
    body = {"prompt": "a", "max_tokens": 250, "ignore_eos": True, "stream": True}
    with (
        running_engine(tiny_settings(model), observers=(slowed(0.05),), drain_s=60) as engine,
        engine.http.stream("POST", "/v1/completions", json=body) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        engine.server.end()
        engine.server.end()
        rest = [line for line in lines if line]

    assert "the engine is shutting down" in rest[-2]
    assert len(rest) < 200


def free_port() -> int:
    with bind("127.0.0.1", 0) as free:
        return int(free.getsockname()[1])


def is_refused_in_the_end(url: str) -> bool:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            httpx.get(url, timeout=60)
        except httpx.ConnectError:
            return True
        except httpx.ReadError:
            pass
        time.sleep(0.02)
    return False


def get_once_it_listens(url: str) -> httpx.Response:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            return httpx.get(url)
        except httpx.ConnectError:
            time.sleep(0.02)
    raise AssertionError(f"nothing listens at {url}")


def test_the_port_is_checked_before_the_model_is_looked_for():
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        settings = EngineProcessSettings(engine=EngineSettings(model="/no/such/model"), port=port)
        with pytest.raises(PortTaken, match=f"port {port} on 127.0.0.1 is taken"):
            run_engine(settings)


def test_a_host_open_to_others_needs_a_key():
    with pytest.raises(UnsafeHost, match=r"host 0.0.0.0 can be reached from other machines"):
        run_engine(EngineProcessSettings(host="0.0.0.0"))


def test_a_model_that_is_not_there_ends_the_start_with_one_line():
    settings = EngineProcessSettings(engine=EngineSettings(model="/no/such/model"), port=0)

    with pytest.raises(ModelNotFound, match="model '/no/such/model' does not exist") as hit:
        run_engine(settings)
    assert hit.value.exit_code == 2
    assert "\n" not in str(hit.value)


def test_a_corrupt_model_ends_the_start_with_one_line(model: Path, tmp_path: Path):
    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    settings = EngineProcessSettings(engine=tiny_settings(tmp_path), port=0)

    with pytest.raises(ModelCorrupt, match="cannot be read") as hit:
        run_engine(settings)
    assert "\n" not in str(hit.value)


def test_a_key_is_never_shown():
    assert "sk-secret" not in repr(EngineProcessSettings(api_key="sk-secret"))


def test_while_the_engine_drains_new_requests_are_refused_and_health_is_red(model: Path):
    body = {"prompt": "a", "max_tokens": 60, "ignore_eos": True, "stream": True}
    with (
        running_engine(tiny_settings(model), observers=(slowed(0.05),), drain_s=600) as engine,
        engine.http.stream("POST", "/v1/completions", json=body) as answer,
        httpx.Client(base_url=engine.url) as waiting,
    ):
        lines = answer.iter_lines()
        next(lines)
        waiting.get("/health").raise_for_status()
        engine.server.end()
        refused = waiting.post("/v1/completions", json={"prompt": "b"})
        while refused.status_code == 200:
            refused = waiting.post("/v1/completions", json={"prompt": "b", "max_tokens": 1})
        health = waiting.get("/health")
        rest = [line for line in lines if line]

    assert (refused.status_code, health.status_code) == (503, 503)
    assert "is shutting down and takes no new request" in refused.json()["error"]["message"]
    assert '"finish_reason":"length"' in rest[-2]
