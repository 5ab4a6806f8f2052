"""What every policy in a world is, and the two that decide nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from collectors.records import OFF, Setting
from policy.simulate.engine import Choice, Counts, Turn


class Policy(Protocol):
    """Chooses for each window, and sees what came of it."""

    @property
    def name(self) -> str:
        """Short name, as in reports."""

    def choose(self, turn: Turn) -> Choice:
        """Say what is drafted in a window."""

    def observe(self, counts: Counts) -> None:
        """Take in what the engine counted in the window."""


class Fixed:
    """One Setting for all routes, for ever."""

    def __init__(self, setting: Setting) -> None:
        """Fix the Setting."""
        self._setting = setting
        self.name = "off" if setting == OFF else f"fixed {setting.label}"

    def choose(self, turn: Turn) -> Choice:
        """Return the Setting for all routes."""
        return for_all(self._setting, turn)

    def observe(self, counts: Counts) -> None:
        """Learn nothing."""


def for_all(setting: Setting, turn: Turn) -> Choice:
    """Return the choice in which all routes have one Setting."""
    return Choice.of([setting] * len(turn.rows), turn.rows)


def for_each(settings: Sequence[Setting], turn: Turn) -> Choice:
    """Return the choice in which each route has its own Setting."""
    return Choice.of(list(settings), turn.rows)
