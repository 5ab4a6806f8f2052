"""AIPerf against an engine: ``python check_aiperf.py URL MODEL TOKENIZER``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import works

URL, MODEL = sys.argv[1:3]


def finished(endpoint: str, *, is_streamed: bool) -> bool:
    """Run four requests; tell whether all of them succeeded."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            str(Path(sys.executable).with_name("aiperf")),
            "profile",
            *("--model", MODEL),
            *("--url", URL),
            *("--endpoint-type", endpoint),
            *("--tokenizer", "builtin"),
            *("--request-count", "4", "--concurrency", "2"),
            *("--synthetic-input-tokens-mean", "24", "--output-tokens-mean", "8"),
            *("--artifact-dir", folder),
            *("--ui", "none"),
            *(["--streaming"] if is_streamed else []),
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError((run.stderr or run.stdout)[-280:].replace("\n", " "))
        [report] = Path(folder).rglob("profile_export_aiperf.json")
        told = json.loads(report.read_text())
    errors = (told.get("error_request_count") or {}).get("avg", 0)
    return told["request_count"]["avg"] == 4 and not errors


works("chat, streamed", lambda: finished("chat", is_streamed=True))
works("chat, whole", lambda: finished("chat", is_streamed=False))
works("completions, streamed", lambda: finished("completions", is_streamed=True))
