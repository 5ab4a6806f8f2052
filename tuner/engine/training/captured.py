"""Prompts of captured requests, as the service stores and the engine captures them.

Called by the training commands: the target answers them anew, so that a head learns the traffic it
will serve. Only prompts are used; what the clients were answered is not.
"""

from __future__ import annotations

import json
from pathlib import Path

from collectors.errors import InvalidRecord
from collectors.records import CapturedRequest
from collectors.records.parsing import as_object
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.prompts import TrainingPrompt
from tuner.engine.training.selfgen import MAX_PROMPT_TOKENS, WaitingPrompt


def read_captured(path: Path) -> list[WaitingPrompt]:
    """Read a file with one captured request a line, prompts too long for training left out.

    Raises:
        TrainingError: the file is missing, a line is no captured request, or nothing is left.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TrainingError(f"cannot read captured requests {path}: {error.strerror}") from error
    found = [_parse(line, f"{path}:{n}") for n, line in enumerate(lines, 1) if line.strip()]
    kept = [prompt for prompt in found if 0 < len(prompt.tokens) <= MAX_PROMPT_TOKENS]
    if not kept:
        raise TrainingError(
            f"{path} holds no prompt of 1 to {MAX_PROMPT_TOKENS} tokens: capture other requests"
        )
    return kept


def _parse(line: str, place: str) -> WaitingPrompt:
    try:
        request = CapturedRequest.from_dict(as_object(json.loads(line), "a line"))
        temperature = float(str(request.sampling.get("temperature") or 0.0))
        top_p = float(str(request.sampling.get("top_p") or 1.0))
    except (ValueError, InvalidRecord) as error:
        raise TrainingError(f"{place} is no captured request: {error}") from error
    prompt = TrainingPrompt(
        kind=request.route, text=request.prompt, temperature=temperature, top_p=top_p
    )
    return WaitingPrompt(prompt=prompt, tokens=list(request.prompt_ids))
