"""Every client's real package against a real engine: ``python -m tests.clients``.

Installs each into an environment of its own below a temporary folder, or below ``--keep FOLDER``
for the next time. ``--record`` writes the requests that the clients really sent to
``tests/fixtures/clients``, from where the fast tests replay them. A package that cannot be
installed here is a row of its own and no failure; a feature that fails is one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.clients.recorder import recording

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FIXTURES = ROOT / "tests" / "fixtures" / "clients"
PACKAGES = {
    "openai": ("openai",),
    "litellm": ("litellm",),
    "langchain": ("langchain-openai",),
    "lmeval": ("lm-eval[api]", "transformers"),
    "guidellm": ("guidellm",),
    "aiperf": ("aiperf",),
}
_READY = "The engine serves on "


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    client: str
    feature: str
    outcome: str

    @property
    def has_failed(self) -> bool:
        return self.outcome.startswith("FAILED")


def main() -> int:
    """Run the matrix; return 1 where a feature failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=sorted(PACKAGES), default=list(PACKAGES))
    parser.add_argument("--keep", type=Path, help="folder of the environments, kept")
    parser.add_argument("--record", action="store_true", help="renew the recorded requests")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, running_engine() as url:
        folder = asked.keep or Path(temporary)
        rows = [row for name in asked.only for row in rows_of(name, folder, url, asked.record)]
    sys.stdout.write(table(rows))
    return int(any(row.has_failed for row in rows))


@contextmanager
def running_engine() -> Iterator[str]:
    """Start ``spectuner engine`` with the bundled model on a free port."""
    command = [sys.executable, "-m", "tuner", "engine", "--port", "0", "--max-rows", "8"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield ready_url(process)
        finally:
            process.terminate()


def ready_url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if _READY in line:
            return line.partition(_READY)[2].strip()
    raise SystemExit("the engine ended before it served; run `spectuner engine` to see why")


def rows_of(name: str, folder: Path, url: str, is_recorded: bool) -> Iterator[Row]:
    """Yield the rows of one client."""
    python = folder / name / "bin" / "python"
    reason = None if python.exists() else install(folder / name, python, PACKAGES[name])
    if reason is not None:
        yield Row(client=name, feature="install", outcome=f"cannot be installed here: {reason}")
        return
    with recording(url) as (proxy, recorder):
        yield from checked(name, python, proxy)
        if is_recorded:
            recorder.write(FIXTURES / f"{name}.jsonl")


def install(place: Path, python: Path, packages: Sequence[str]) -> str | None:
    """Install a client; return why it could not be, in one line."""
    venv.create(place, with_pip=True)
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return None
    return (run.stderr.strip().splitlines() or ["pip said nothing"])[-1][:200]


def checked(name: str, python: Path, url: str) -> Iterator[Row]:
    """Run a client's checks; yield its rows, the last one a failure where it broke off."""
    command = [str(python), str(HERE / f"check_{name}.py"), url, served_model(url), tokenizer()]
    environment = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        "HF_HUB_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_API_KEY": "any",
    }
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    for line in run.stdout.splitlines():
        if line.startswith("ROW "):
            yield Row(client=name, **json.loads(line[4:]))
    if run.returncode != 0:
        last = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
        yield Row(client=name, feature="all", outcome=f"FAILED: {last[:200]}")


def served_model(url: str) -> str:
    with urllib.request.urlopen(f"{url}/v1/models") as answer:
        return str(json.load(answer)["data"][0]["id"])


def tokenizer() -> str:
    """Return the directory of the bundled model, whose tokenizer some clients count with."""
    command = [sys.executable, "-m", "tuner", "model", "--json", "-"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return str(json.loads(run.stdout)["path"])


def table(rows: Sequence[Row]) -> str:
    width = max((len(row.feature) for row in rows), default=0)
    lines = [f"{row.client:<10} {row.feature:<{width}}  {row.outcome}\n" for row in rows]
    failed = sum(row.has_failed for row in rows)
    return "".join(lines) + f"{len(rows)} rows, {failed} failed\n"


if __name__ == "__main__":
    raise SystemExit(main())
