"""What the training commands show: bars, a small plot of live acceptance, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from tuner.engine.training.distill import Mark, StepProgress
from tuner.engine.training.measure import RouteAcceptance

_BARS = "▁▂▃▄▅▆▇█"
_PLOT_WIDTH = 24


@contextmanager
def bar(console: Console, what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Show a bar while the block runs; it gives a function that moves it by one."""
    with _progress(console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)


@contextmanager
def training_bar(
    console: Console, num_steps: int
) -> Iterator[Callable[[StepProgress, list[Mark]], None]]:
    """Show loss and live acceptance; where nothing can be redrawn, one line a checkpoint."""
    with _progress(console) as progress:
        task = progress.add_task("loss", total=num_steps)

        def report(done: StepProgress, marks: list[Mark]) -> None:
            text = describe(done, marks)
            progress.update(task, completed=done.step, description=text)
            if not console.is_terminal and marks and marks[-1].step == done.step:
                console.print(f"step {done.step}: {text}", soft_wrap=True)

        yield report


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def describe(done: StepProgress, marks: Sequence[Mark]) -> str:
    """Return one line: loss, hits by depth, and the course of live acceptance as small bars."""
    matches = " ".join(f"{ratio:.0%}" for ratio in done.match_ratios)
    text = f"loss {done.loss:.3f}, same best token {matches}"
    lengths = [mark.tokens_per_pass for mark in marks if mark.tokens_per_pass is not None]
    if lengths:
        text += f", held out {sparkline(lengths)} {lengths[-1]:.2f} tokens per pass"
    return text


def sparkline(values: Sequence[float]) -> str:
    """Return the last values as small bars between their least and their largest."""
    shown = values[-_PLOT_WIDTH:]
    low, span = min(shown), (max(shown) - min(shown)) or 1.0
    top = len(_BARS) - 1
    return "".join(_BARS[round(top * (value - low) / span)] for value in shown)


def acceptance_table(routes: Mapping[str, RouteAcceptance]) -> Table:
    """Return acceptance by route and position."""
    k = max(len(route.accepted_by_position) for route in routes.values())
    positions = (f"position {number + 1}" for number in range(k))
    table = Table("route", "tokens", "tokens/pass", "accepted", *positions)
    for name, route in routes.items():
        shares = [f"{ratio:.3f}" for ratio in route.ratios]
        figures = [f"{route.tokens_per_pass:.2f}", f"{route.mean_accepted:.2f}", *shares]
        table.add_row(name, str(route.tokens), *figures)
    return table
