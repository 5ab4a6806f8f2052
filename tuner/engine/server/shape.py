"""What the two generating endpoints do differently, as one seam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tuner.engine.request import Delta


class AnswerShape(Protocol):
    """Turns deltas into the JSON objects of one endpoint, for one request."""

    def opening(self, index: int) -> dict[str, object] | None:
        """Return the chunk that opens a choice's stream; None where there is none."""

    def chunk(self, index: int, delta: Delta) -> dict[str, object] | None:
        """Return the chunk of one delta of a choice; None where it shows nothing yet."""

    def usage_chunk(self) -> dict[str, object]:
        """Return a chunk without choices, to carry the usage."""

    def body(self, answers: Sequence[Delta]) -> dict[str, object]:
        """Return the body of a request that is not streamed, one choice an answer."""
