"""The training commands tell a user what is wrong in one line, and go the whole way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collectors.records import CapturedRequest


def _run(*arguments: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner.engine.training", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def _assert_one_line(done: subprocess.CompletedProcess[str], wanted: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert wanted in done.stderr


def test_a_wrong_target_is_one_line_on_stderr_and_exit_code_2(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    folders = ("--data", str(tmp_path), "--out", "x", "--target", missing)
    _assert_one_line(_run("distill", "eagle", *folders), missing)


def test_an_unknown_method_and_no_source_of_prompts_are_one_line(tmp_path: Path) -> None:
    folders = ("--data", str(tmp_path), "--out", "x")
    _assert_one_line(_run("distill", "hydra", *folders), "unknown method 'hydra'")
    _assert_one_line(_run("medusa", "--out", str(tmp_path)), "--self-distill")


def test_an_unknown_kind_of_prompt_is_one_line(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path), "--kinds", "math,poem")
    _assert_one_line(_run("generate", *options), "unknown kind 'poem'")


@pytest.mark.slow
def test_a_method_goes_from_captured_requests_to_a_measured_head(tmp_path: Path) -> None:
    captures, traffic = tmp_path / "captures.jsonl", tmp_path / "traffic.jsonl"
    requests = [
        CapturedRequest(
            seq=n,
            at=1.0,
            request_id=f"r{n}",
            route="chat",
            prompt="count",
            prompt_ids=tuple(range(1000, 1010 + n)),
        )
        for n in range(1, 10)
    ]
    captures.write_text("\n".join(json.dumps(request.to_dict()) for request in requests))
    asked = {
        "route": "chat",
        "messages": [{"role": "user", "content": "hi"}],
        "sampling": {"temperature": 0, "max_tokens": 8},
    }
    traffic.write_text(json.dumps(asked))
    out = tmp_path / "head"
    options = ("--out", str(out), "--data", str(captures), "--traffic", str(traffic))
    done = _run("medusa", *options, "--steps", "2", timeout_s=900)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["data"]["answers"] == sum(manifest["data"]["kinds"].values()) == 8
    assert manifest["training"]["start_sha256"] is None
    assert manifest["training"]["held_out_shard"] == 4
    assert manifest["acceptance"]["chat"]["k"] == 4
    assert (out / "training.svg").exists()

    again, start = tmp_path / "again", ("--start", str(out / "model.safetensors"))
    folders = ("--data", str(out / "answers"), "--out", str(again))
    done = _run("distill", "medusa", *folders, *start, "--steps", "1", timeout_s=900)
    assert done.returncode == 0, done.stderr
    second = json.loads((again / "manifest.json").read_text())
    assert second["training"]["start_sha256"] == manifest["weights_sha256"]
