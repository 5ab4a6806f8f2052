"""From token ids to text, token by token, and the search for stop strings in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class TokenDecoder(Protocol):
    """Turns a growing sequence of tokens into text."""

    def push(self, token_id: int) -> str:
        """Take one token; return the text it completed, empty while a character is partial."""

    def flush(self) -> str:
        """Return what is left of a partial character at the end."""


@dataclass(frozen=True, slots=True)
class StopMatch:
    """Where a stop string was found.

    Attributes:
        stop: the string.
        text: what may still be delivered, up to the match.
    """

    stop: str
    text: str


class StopScanner:
    """Delivers text that can no longer become part of a stop string.

    The earliest match in the text wins, whichever stop string it is; of two that begin at one
    place, the one listed first.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""

    def push(self, piece: str) -> str | StopMatch:
        """Take new text; return what can be delivered now, or the match that ends the answer."""
        if not self._stops:
            return piece
        self._held += piece
        match = self._first_match()
        if match is not None:
            return match
        keep = self._num_undecided()
        ready = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return ready

    def flush(self) -> str:
        """Return the held text, at the end of an answer without a match."""
        held, self._held = self._held, ""
        return held

    def _first_match(self) -> StopMatch | None:
        places = [(self._held.find(stop), stop) for stop in self._stops]
        found = [place for place in places if place[0] >= 0]
        if not found:
            return None
        start, stop = min(found, key=lambda place: place[0])
        return StopMatch(stop=stop, text=self._held[:start])

    def _num_undecided(self) -> int:
        """Return the length of the longest tail that begins some stop string."""
        longest = max(len(stop) for stop in self._stops) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
