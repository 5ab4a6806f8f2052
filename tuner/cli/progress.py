"""What shows how far a workflow is: a bar, or lines on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed


@dataclass(frozen=True, slots=True)
class Progressing:
    """One bar; ``update`` has the signature of the workflows' callbacks."""

    bar: Progress
    task: TaskID

    @classmethod
    @contextmanager
    def on(cls, console: Console, what: str) -> Iterator[Progressing]:
        """Show a bar while the block runs; it vanishes afterwards."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Elapsed())
        with Progress(*columns, console=console, transient=True) as bar:
            yield cls(bar, bar.add_task(what, total=None))

    def update(self, done: int, total: int) -> None:
        """Move the bar."""
        self.bar.update(self.task, completed=done, total=total)

    def counting(self, total: int) -> Callable[[], None]:
        """Return a callback that moves the bar by one of so many."""
        self.bar.update(self.task, total=total)
        return lambda: self.bar.advance(self.task)


def lines_on_stderr(what: str) -> Callable[[int, int], None]:
    """Return a callback that prints a line such as ``12 of 20 pairs`` to stderr."""

    def show(done: int, total: int) -> None:
        typer.echo(f"{done} of {total} {what}", err=True)

    return show
