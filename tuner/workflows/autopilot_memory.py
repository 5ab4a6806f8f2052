"""What the control loop remembers between two ticks; folding stored windows brings it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collectors.records import LoadLevel, Setting
from policy.controller import Controller
from policy.knowledge import Mix
from policy.types import Window


@dataclass(slots=True, kw_only=True)
class AutopilotMemory:
    """The loop's learner and what the engine ran lately.

    Attributes:
        controller: the loop; None before the first tick and after its arms changed.
        arms: the arms that the loop was built for.
        exploring_share: share of tokens that it was built for.
        through_s: up to where facts were folded, Unix seconds.
        mixes: newest mix of each load level, with the end of its window.
        gate: why an arm may not be used, None where it may; by route and arm.
        gate_s: when the gate was asked, Unix seconds.
    """

    controller: Controller | None = None
    arms: tuple[Setting, ...] = ()
    exploring_share: float = 0.0
    through_s: float = 0.0
    mixes: dict[LoadLevel, tuple[float, Mix]] = field(default_factory=dict)
    gate: Mapping[tuple[str, Setting], str | None] = field(default_factory=dict)
    gate_s: float = 0.0

    def observe(self, controller: Controller, windows: Sequence[Window], through_s: float) -> None:
        """Learn from windows that end at a moment."""
        for window in windows:
            controller.observe(window)
            for seen in window.mixes:
                rows = {name: count for name, count in seen.rows_by_route.items() if count > 0}
                if rows and seen.steps:
                    mix = Mix(
                        load=seen.load,
                        steps=float(seen.steps),
                        rows_by_route=rows,
                        context_tokens=seen.context_tokens,
                    )
                    self.mixes[seen.load] = (window.end_s, mix)
        self.through_s = through_s

    def mixes_since(self, start_s: float) -> tuple[Mix, ...]:
        """Return the newest mix of each load level seen after a moment, lowest level first."""
        return tuple(mix for _, (end_s, mix) in sorted(self.mixes.items()) if end_s >= start_s)
