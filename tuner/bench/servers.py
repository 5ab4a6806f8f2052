"""OpenAI servers as child processes, and the load they are put under."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tuner.demo.processes import start_child
from tuner.errors import TunerError

_HOST = "127.0.0.1"
_START_S = 300.0
_ANSWER_S = 600.0
PEER_ENVIRON = {"GOMP_SPINCOUNT": "300000"}
"""What a peer gets in place of our lower limit. Source: the default in libgomp's manual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """How a server is started.

    Attributes:
        name: for people, and of its log.
        arguments: the command; ``{port}`` stands for its port.
        environ: added to this process's environment.
    """

    name: str
    arguments: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Completions asked for together.

    Attributes:
        prompts: token ids.
        num_tokens: of each answer; the model's end tokens are ignored.
        concurrency: requests in flight.
    """

    prompts: tuple[tuple[int, ...], ...]
    num_tokens: int
    concurrency: int


class Server:
    """A server that answers `/v1/completions`."""

    def __init__(self, url: str, extra: Mapping[str, object] | None = None) -> None:
        """Talk to a running server.

        Args:
            url: its address, without a path.
            extra: keys added to every body.
        """
        self._url = url
        self._extra = dict(extra or {})

    def tokens_per_s(self, load: Load) -> float:
        """Ask for completions, greedily, and return tokens per second from first to last byte.

        Raises:
            TunerError: the server refused a request or gave no answer; holds its words.
        """
        limits = httpx.Limits(max_connections=load.concurrency)
        with (
            httpx.Client(base_url=self._url, timeout=_ANSWER_S, limits=limits) as client,
            ThreadPoolExecutor(load.concurrency) as threads,
        ):
            started = time.perf_counter()
            jobs = [
                threads.submit(self._complete, client, prompt, load.num_tokens)
                for prompt in load.prompts
            ]
            tokens = sum(job.result() for job in jobs)
            return tokens / (time.perf_counter() - started)

    def _complete(self, client: httpx.Client, prompt: Sequence[int], num_tokens: int) -> int:
        body = {
            "prompt": list(prompt),
            "max_tokens": num_tokens,
            "temperature": 0,
            "ignore_eos": True,
            **self._extra,
        }
        try:
            answer = client.post("/v1/completions", json=body)
        except httpx.HTTPError as error:
            raise TunerError(f"{self._url} gave no answer: {error}") from error
        if not answer.is_success:
            raise TunerError(f"{answer.url} answers {answer.status_code}: {answer.text[:200]}")
        return int(json.loads(answer.text)["usage"]["completion_tokens"])


@contextlib.contextmanager
def running(command: ServerCommand, log_folder: Path) -> Iterator[str]:
    """Run a server on a free port of loopback, on a leash; yield its address once it is healthy.

    Raises:
        ChildFailed: it ended or was not healthy in time; holds the last line of its log.
    """
    port = _free_port()
    arguments = [argument.replace("{port}", str(port)) for argument in command.arguments]
    log = log_folder / f"{command.name}.log"
    child = start_child(command.name, arguments, command.environ, log)
    url = f"http://{_HOST}:{port}"
    try:
        child.wait_until_healthy(url, _START_S)
        yield url
    finally:
        child.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
