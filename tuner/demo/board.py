"""What the demo shows while it works: lines as things happen, and a bar for the day."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tuner.demo.client import ClientTrace
from tuner.demo.phases import Phase

_TICK_S = 0.5


@dataclass(slots=True, kw_only=True)
class Board:
    """Lines and bars on one console.

    Attributes:
        console: where they go.
        started: monotonic seconds that lines count from.
        answered: requests that came back whole.
        failed: requests that did not.
        tokens: tokens delivered to clients.
    """

    console: Console
    started: float = field(default_factory=time.monotonic)
    answered: int = 0
    failed: int = 0
    tokens: int = 0

    def say(self, line: str) -> None:
        """Print a line with the time since the start."""
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        self.console.print(f"[dim]{minutes:02}:{seconds:02}[/]", end=" ", highlight=False)
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def count(self, trace: ClientTrace) -> None:
        """Count a request that ended; the first failures are shown."""
        self.tokens += trace.completion_tokens
        if trace.error:
            self.failed += 1
            if self.failed <= 3:
                self.say(f"A request of route {trace.route} failed: {trace.error}")
        else:
            self.answered += 1

    async def follow(self, phases: Sequence[Phase]) -> None:
        """Show the day as a bar until it is over or the task is cancelled."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as bars:
            task = bars.add_task("", total=sum(phase.duration_s for phase in phases), counts="")
            await self._move(bars, task, phases)

    async def _move(self, bars: Progress, task: TaskID, phases: Sequence[Phase]) -> None:
        start = time.monotonic()
        while not bars.finished:
            elapsed_s = time.monotonic() - start
            failed = f", {self.failed} failed" if self.failed else ""
            bars.update(
                task,
                completed=elapsed_s,
                description=_phase_at(phases, elapsed_s),
                counts=f"{self.answered} answered{failed}, {self.tokens:,} tokens",
            )
            await asyncio.sleep(_TICK_S)


def _phase_at(phases: Sequence[Phase], elapsed_s: float) -> str:
    for phase in phases:
        if elapsed_s < phase.duration_s:
            return phase.name
        elapsed_s -= phase.duration_s
    return phases[-1].name
