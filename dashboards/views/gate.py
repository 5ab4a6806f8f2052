"""What a recommendation's page shows of the gate: evidence on its own route, Setting by Setting."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from collectors.records import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLine:
    """The evidence on one proposed Setting, from the recommendation's route.

    Attributes:
        route: the route.
        setting: the Setting.
        is_open: whether the gate lets it through at the load levels that are proposed.
        reason: why it does not; None where it does.
        findings: sentences of the newest verdict on outputs and speed; empty without one.
        note: at which load levels speed was not replayed; None where it was at all of them.
        at: when the verdict was given; None without one.
        replay: number of its replay; None without one.
        divergence: number of its divergence report; None without one.
        is_running: whether an evaluation is asked for or under way.
        progress: how far it is, such as ``12 of 20 pairs``; why the last one failed where none
            runs; empty where there is nothing to say.
    """

    route: str
    setting: Setting
    is_open: bool
    reason: str | None
    findings: tuple[str, ...]
    note: str | None
    at: datetime | None
    replay: int | None
    divergence: int | None
    is_running: bool
    progress: str
