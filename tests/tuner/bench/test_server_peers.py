from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.tuner.engine.server.running import MODEL, running_engine, tiny_settings
from tuner.bench.server_peers import ServerPeerOptions, compare_servers
from tuner.bench.servers import Load, Server, ServerCommand, running
from tuner.demo.errors import ChildFailed
from tuner.engine.settings import EngineSettings
from tuner.errors import TunerError

_HEALTHY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def load(num: int, concurrency: int, num_tokens: int = 8) -> Load:
    prompts = tuple((7, 11 + number, 5) for number in range(num))
    return Load(prompts=prompts, num_tokens=num_tokens, concurrency=concurrency)


def test_every_answer_has_the_length_asked_for_and_no_more_run_than_wanted(
    roomy_model: Path,
) -> None:
    settings = tiny_settings(roomy_model)
    setting = {"method": "prompt_lookup", "k": 3}
    with running_engine(settings) as engine:
        server = Server(engine.url, {"model": MODEL, "speculation": setting})
        speed = server.tokens_per_s(load(5, concurrency=2))
        traces = engine.traces()
        steps = [record for record in engine.page().records if hasattr(record, "running")]

    assert speed > 0
    assert [trace.completion_tokens for trace in traces] == [8] * 5
    assert {trace.setting.method.value for trace in traces} == {"prompt_lookup"}
    assert max(step.running for step in steps) == 2


def test_a_refusal_holds_the_servers_words(roomy_model: Path) -> None:
    with running_engine(tiny_settings(roomy_model)) as engine:
        server = Server(engine.url, {"model": "another"})
        with pytest.raises(TunerError, match=r"answers 404: .*another"):
            server.tokens_per_s(load(1, concurrency=1))


def test_a_server_runs_while_it_is_used_and_no_longer(tmp_path: Path) -> None:
    command = ServerCommand(name="web", arguments=(sys.executable, "-c", _HEALTHY, "{port}"))
    with running(command, tmp_path) as url, pytest.raises(TunerError, match="answers 501"):
        Server(url).tokens_per_s(load(1, concurrency=1))
    with pytest.raises(TunerError, match="gave no answer"):
        Server(url).tokens_per_s(load(1, concurrency=1))


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    command = ServerCommand(
        name="broken", arguments=(sys.executable, "-c", "raise SystemExit('no weights')")
    )
    with (
        pytest.raises(ChildFailed, match="broken ended with exit code 1: no weights"),
        running(command, tmp_path),
    ):
        pass


def test_peers_that_are_not_there_are_skipped_with_the_fix(tmp_path: Path) -> None:
    options = ServerPeerOptions(
        engine=EngineSettings(),
        peer_python=str(tmp_path / "python"),
        llama_server=str(tmp_path / "llama-server"),
    )

    cases = list(compare_servers(options))

    assert [(case.peer, case.ratio) for case in cases] == [("vllm", None), ("llama.cpp", None)]
    assert "--peer-python" in cases[0].skipped
    assert "--llama-server" in cases[1].skipped
    assert "skipped" in cases[0].line()


def test_a_model_without_a_gguf_file_is_no_model_for_llama_cpp(
    tmp_path: Path, roomy_model: Path
) -> None:
    options = ServerPeerOptions(
        engine=EngineSettings(model=str(roomy_model)),
        peer_python=str(tmp_path / "python"),
        llama_server=sys.executable,
    )

    cases = list(compare_servers(options))

    assert cases[1].peer == "llama.cpp"
    assert "is no GGUF file" in cases[1].skipped
