"""What commands print: text for people through rich, figures as JSON for other tools."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from tuner.cli.errors import CommandFailed, UsageError

STDOUT = "-"
NO_DATA = "no data"
_FILE_WIDTH = 140

JsonOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="PATH",
        help="Write the figures as JSON to PATH; - is stdout, and text then goes to stderr.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where one command's text and figures go.

    Attributes:
        console: for people; stderr where stdout belongs to the JSON.
        json_path: file for the figures, ``-`` for stdout, None for nowhere.
    """

    console: Console
    json_path: str | None

    @classmethod
    def open(cls, json_path: str | None) -> Output:
        """Prepare the output; a path that cannot be written is refused before any work is done.

        Raises:
            UsageError: the folder does not exist or the path is a folder.
        """
        if json_path is not None and json_path != STDOUT:
            path = Path(json_path)
            if path.is_dir() or not path.absolute().parent.is_dir():
                raise UsageError(f"--json {json_path}: not a file in an existing folder")
        console = Console(stderr=json_path == STDOUT)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = _FILE_WIDTH
        return cls(console=console, json_path=json_path)

    def show(self, title: str, figures: Table) -> None:
        """Print a table under its title."""
        self.console.print(f"[bold]{title}[/]")
        self.console.print(figures)

    def write(self, figures: Mapping[str, object]) -> None:
        """Write the figures where ``--json`` asked for them.

        Raises:
            CommandFailed: the file cannot be written.
        """
        if self.json_path is None:
            return
        text = json.dumps(finite(figures), indent=2, ensure_ascii=False) + "\n"
        if self.json_path == STDOUT:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        try:
            Path(self.json_path).write_text(text)
        except OSError as error:
            raise CommandFailed(
                f"--json {self.json_path} cannot be written: {error.strerror}"
            ) from error


def finite(value: object) -> object:
    """Return a value fit for strict JSON: infinities and NaN become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return value


def table(columns: Sequence[str], num_text_columns: int = 1) -> Table:
    """Return an empty table whose figures stand to the right.

    Args:
        columns: headings.
        num_text_columns: how many of the first columns hold words.
    """
    result = Table(header_style="dim", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        result.add_column(column, justify="left" if index < num_text_columns else "right")
    return result


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Read a comma-separated list of numbers.

    Raises:
        UsageError: an entry is no number.
    """
    return tuple(_number(option, entry) for entry in text.split(","))


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Read a comma-separated list of whole numbers.

    Raises:
        UsageError: an entry is no whole number.
    """
    values = numbers(option, text)
    for value in values:
        if value != int(value):
            raise UsageError(f"{option} {text}: {value:g} is not a whole number")
    return tuple(int(value) for value in values)


def _number(option: str, entry: str) -> float:
    try:
        value = float(entry)
    except ValueError:
        raise UsageError(f"{option}: {entry.strip()!r} is not a number") from None
    if not math.isfinite(value):
        raise UsageError(f"{option}: {entry.strip()} is not a finite number")
    return value
