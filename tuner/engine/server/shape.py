"""What the two generating endpoints do differently, as one seam."""

from __future__ import annotations

from typing import Protocol

from tuner.engine.request import Delta


class AnswerShape(Protocol):
    """Turns deltas into the JSON objects of one endpoint, for one request."""

    def opening(self) -> dict[str, object] | None:
        """Return the chunk that opens a stream; None where there is none."""

    def chunk(self, delta: Delta) -> dict[str, object]:
        """Return the chunk of one delta."""

    def usage_chunk(self) -> dict[str, object]:
        """Return a chunk without choices, to carry the usage."""

    def body(self, whole: Delta) -> dict[str, object]:
        """Return the body of an answer that is not streamed."""
