"""Child processes of the demo: started on a leash, watched until healthy, stopped in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tuner.demo.errors import ChildFailed, PortInUse

_STOP_PATIENCE_S = 8.0
_POLL_S = 0.2
_HEALTH_S = 2.0


@dataclass(slots=True, kw_only=True)
class Child:
    """A running child process.

    Attributes:
        name: for people.
        process: in its own process group, so that Ctrl-C reaches only the parent.
        log: where its output goes.
    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def require_running(self) -> None:
        """Refuse to go on where the child has ended.

        Raises:
            ChildFailed: it has; the message holds its last line.
        """
        code = self.process.poll()
        if code is not None:
            raise ChildFailed(
                f"the {self.name} ended with exit code {code}: {last_line(self.log)} "
                f"(log: {self.log})"
            )

    def require_healthy(self, url: str) -> None:
        """Refuse to go on where the child has ended or says that it is broken.

        Silence is not held against it: it may be busy.

        Raises:
            ChildFailed: it has ended, or its health address answers with an error.
        """
        self.require_running()
        try:
            answer = httpx.get(f"{url}/health", timeout=_HEALTH_S, trust_env=False)
        except httpx.HTTPError:
            return
        if answer.is_server_error:
            raise ChildFailed(
                f"the {self.name} answers {answer.status_code}: {_reason(answer)} (log: {self.log})"
            )

    def wait_until_healthy(self, url: str, timeout_s: float) -> None:
        """Wait until the health address answers 200.

        Raises:
            ChildFailed: the child ended, or did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.require_running()
            try:
                if (
                    httpx.get(f"{url}/health", timeout=_HEALTH_S, trust_env=False).status_code
                    == 200
                ):
                    return
            except httpx.HTTPError:
                pass
            time.sleep(_POLL_S)
        raise ChildFailed(
            f"the {self.name} did not answer at {url} within {timeout_s:.0f} s (log: {self.log})"
        )

    def ask_to_end(self) -> None:
        """Send SIGTERM to the child and its group, and do not wait."""
        if self.process.poll() is None:
            self._signal(signal.SIGTERM)

    def stop(self) -> bool:
        """End the child and its group; returns False where it had to be killed."""
        if self.process.poll() is not None:
            return True
        self.ask_to_end()
        try:
            self.process.wait(_STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return


SPECTUNER = (sys.executable, "-m", "tuner")
"""This program itself, as the first arguments of a child."""


def start_child(
    name: str, arguments: Sequence[str], environ: Mapping[str, str], log: Path
) -> Child:
    """Start a program on a leash, output into a log file.

    Args:
        name: for people.
        arguments: the program and its arguments.
        environ: added to this process's environment.
        log: written anew.
    """
    leash = [sys.executable, "-m", "tuner.demo.leash", str(os.getpid()), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            leash,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environ},
        )
    return Child(name=name, process=process, log=log)


def require_free_port(host: str, port: int, flag: str) -> None:
    """Refuse a port that another process listens on.

    Raises:
        PortInUse: it is taken; the message names the flag that chooses another.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortInUse(
                f"port {port} on {host} cannot be used ({error.strerror}); choose another with "
                f"{flag} PORT"
            ) from error


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]


def last_line(log: Path) -> str:
    """Return the last non-empty line of a log, or a word where there is none."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"
