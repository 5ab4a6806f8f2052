"""Steps that only decoded, counted together: what a predicted goodput can be held against."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.records import LoadLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSum:
    """Live steps of one load level that read no prompt, within a window.

    Attributes:
        load: the load level.
        route: route of the steps' only row; None where routes share steps.
        steps: steps counted.
        tokens: tokens delivered.
        busy_s: their summed time, in seconds.
    """

    load: LoadLevel
    route: str | None
    steps: int
    tokens: int
    busy_s: float
