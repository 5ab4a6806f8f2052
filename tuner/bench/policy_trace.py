"""Load from a recorded trace: who runs when, and how long their contexts are.

The format is that of the Azure LLM inference traces (Patel et al., Splitwise, ISCA 2024): a CSV
with TIMESTAMP, ContextTokens and GeneratedTokens, one request a line in order of arrival.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from policy.errors import InvalidInput
from policy.simulate.profiles import UNIT_S
from policy.simulate.worlds import WINDOW_S
from policy.statistics import Floats, Ints

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
TOKEN_S = UNIT_S
"""Seconds a request takes for a token, to say how long it runs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Requests in order of arrival.

    Attributes:
        arrival_s: [N] seconds after the first.
        context_tokens: [N] tokens of the prompt.
        generated_tokens: [N] tokens of the answer.
    """

    arrival_s: Floats
    context_tokens: Floats
    generated_tokens: Floats

    def running(self, seed: int, num_windows: int) -> tuple[Ints, Floats]:
        """Return running sequences and mean KV entries of a row by window; [W] each.

        Each seed starts at another moment of the trace, which begins again at its end. A window
        without requests counts as one row, as an engine's lowest load level does.
        """
        length_s = float(self.arrival_s[-1]) + WINDOW_S
        generator = np.random.default_rng((20260103, seed))
        start_s = float(generator.uniform(0, length_s))
        middle_s = (start_s + WINDOW_S * (np.arange(num_windows) + 0.5)) % length_s
        end_s = self.arrival_s + TOKEN_S * self.generated_tokens
        order = np.argsort(end_s, kind="stable")
        held = self.context_tokens + self.generated_tokens / 2
        begun = np.searchsorted(self.arrival_s, middle_s, side="right")
        ended = np.searchsorted(end_s[order], middle_s, side="right")
        begun_held = np.concatenate(([0.0], np.cumsum(held)))[begun]
        ended_held = np.concatenate(([0.0], np.cumsum(held[order])))[ended]
        rows = np.maximum(begun - ended, 1)
        return np.asarray(rows, dtype=np.intp), np.asarray((begun_held - ended_held) / rows)


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises:
        InvalidInput: the file cannot be read, or a line is not of the format; names the line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"--trace {path}: cannot be read as CSV: {error}") from error
    if not rows or not set(COLUMNS) <= set(rows[0]):
        raise InvalidInput(f"--trace {path}: needs lines under the columns {', '.join(COLUMNS)}")
    numbers = [_numbers(path, line, row) for line, row in enumerate(rows, start=2)]
    arrival, context, generated = np.array(numbers).T
    if np.any(np.diff(arrival) < 0):
        line = int(np.argmax(np.diff(arrival) < 0)) + 3
        raise InvalidInput(f"--trace {path}, line {line}: arrives before the line above it")
    return Trace(arrival_s=arrival - arrival[0], context_tokens=context, generated_tokens=generated)


def _numbers(path: Path, line: int, row: dict[str, str]) -> tuple[float, float, float]:
    try:
        at = datetime.fromisoformat(row["TIMESTAMP"])
        context, generated = int(row["ContextTokens"]), int(row["GeneratedTokens"])
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"--trace {path}, line {line}: {error}") from error
    if context < 0 or generated < 0:
        raise InvalidInput(f"--trace {path}, line {line}: a token count is negative")
    moment = (at.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
    return moment, float(context), float(generated)
