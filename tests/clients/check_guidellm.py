"""GuideLLM against an engine: ``python check_guidellm.py URL MODEL TOKENIZER``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import works

URL, MODEL, TOKENIZER = sys.argv[1:4]


def finished(profile: str, path: str) -> bool:
    """Run four requests; tell whether all of them succeeded."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            str(Path(sys.executable).with_name("guidellm")),
            "run",
            "--disable-console-interactive",
            *("--backend", f"kind=openai_http,target={URL},model={MODEL},request_format={path}"),
            *("--profile", profile),
            *("--constraint", "kind=max_requests,count=4"),
            *("--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}"),
            *("--data", "kind=synthetic_text,prompt_tokens=24,output_tokens=8"),
            *("--output", f"kind=json,path={report}"),
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError((run.stderr or run.stdout)[-2000:].replace("\n", " ")[-280:])
        [benchmark] = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    return totals["successful"] >= 4 and totals["errored"] == 0


works("chat, one at a time", lambda: finished("kind=synchronous", "/v1/chat/completions"))
works("completions, two at once", lambda: finished("kind=concurrent,streams=2", "/v1/completions"))
