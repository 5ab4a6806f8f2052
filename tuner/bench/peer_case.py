"""One comparison with another engine, or why there was none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCase:
    """One comparison.

    Attributes:
        peer: the other engine.
        case: what both ran.
        ratio: our tokens per second over the peer's; None where it was skipped.
        skipped: why; empty where it ran.
        tokens_per_pass: ours; None where only servers were watched.
        peer_tokens_per_pass: the peer's; None likewise.
    """

    peer: str
    case: str
    ratio: float | None = None
    skipped: str = ""
    tokens_per_pass: float | None = None
    peer_tokens_per_pass: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {name: getattr(self, name) for name in self.__slots__}

    def line(self) -> str:
        """Return it as a sentence."""
        if self.ratio is None:
            return f"{self.peer}, {self.case}: skipped, {self.skipped}"
        told = f"{self.peer}, {self.case}: {self.ratio:.2f}x its tokens per second"
        if self.tokens_per_pass is None or self.peer_tokens_per_pass is None:
            return told
        passes = f"{self.tokens_per_pass:.2f} against {self.peer_tokens_per_pass:.2f}"
        return f"{told}, tokens per pass {passes}"
