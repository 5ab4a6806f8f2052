"""What else runs on the machine while the service is measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path

from tuner.demo.processes import Child, start_child

BURST_S = 20.0
"""Seconds that a neighbour burns its core, and seconds that it then sleeps."""


class Condition(StrEnum):
    """The neighbours of the engine."""

    QUIET = "quiet"
    NEIGHBOUR = "neighbour"
    BOTH = "both"

    @property
    def num_burners(self) -> int:
        """Cores that are burnt in bursts."""
        return {"quiet": 0, "neighbour": 1, "both": 2}[self.value]


@contextmanager
def neighbours(
    condition: Condition, logs: Path, pause_s: float = BURST_S
) -> Iterator[tuple[Child, ...]]:
    """Run the neighbours of a condition; they are gone when the block is left.

    Args:
        condition: which.
        logs: folder for their output.
        pause_s: seconds of rest between bursts; 0 burns all the time.
    """
    with ExitStack() as stack:
        yield tuple(
            _burner(number, logs, pause_s, stack) for number in range(condition.num_burners)
        )


def _burner(number: int, logs: Path, pause_s: float, stack: ExitStack) -> Child:
    command = [sys.executable, "-m", "tuner.bench.service.burner", str(BURST_S), str(pause_s)]
    child = start_child(f"neighbour {number}", command, {}, logs / f"neighbour-{number}.log")
    stack.callback(child.stop)
    return child
