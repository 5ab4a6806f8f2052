"""AIPerf against an engine: ``python check_aiperf.py URL MODEL TOKENIZER``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import works

URL, MODEL, TOKENIZER = sys.argv[1:4]
NAME, REVISION = "local/tokenizer", "0" * 40


def cached_tokenizer(folder: Path) -> dict[str, str]:
    """Lay the tokenizer out as Hugging Face's cache does; without a network AIPerf reads no other.

    Returns the environment that finds it.
    """
    place = folder / ("models--" + NAME.replace("/", "--"))
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(REVISION)
    (place / "snapshots").mkdir()
    (place / "snapshots" / REVISION).symlink_to(TOKENIZER)
    return {**os.environ, "HF_HUB_CACHE": str(folder)}


def finished(endpoint: str, *, is_streamed: bool) -> bool:
    """Run four requests; tell whether all of them succeeded."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        command = [
            str(Path(sys.executable).with_name("aiperf")),
            "profile",
            *("--model", MODEL),
            *("--url", URL),
            *("--endpoint-type", endpoint),
            *("--tokenizer", NAME),
            *("--request-count", "4", "--concurrency", "2"),
            *("--synthetic-input-tokens-mean", "24", "--output-tokens-mean", "8"),
            *("--artifact-dir", folder),
            *("--ui", "none"),
            *(["--streaming"] if is_streamed else []),
        ]
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=cached_tokenizer(Path(cache)),
        )
        if run.returncode != 0:
            raise RuntimeError((run.stderr or run.stdout)[-280:].replace("\n", " "))
        [report] = Path(folder).rglob("profile_export_aiperf.json")
        told = json.loads(report.read_text())
    errors = (told.get("error_request_count") or {}).get("avg", 0)
    return told["request_count"]["avg"] == 4 and not errors


works("chat, streamed", lambda: finished("chat", is_streamed=True))
works("chat, whole", lambda: finished("chat", is_streamed=False))
works("completions, streamed", lambda: finished("completions", is_streamed=True))
