"""What the recommendation pages show."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from collectors.records import LoadLevel
from dashboards.views.gate import GateLine
from policy.realised import Realised
from policy.types import Advice, Interval, Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationLine:
    """A recommendation in a list.

    Attributes:
        id: number.
        route: route name.
        state: its state.
        advice: what it says.
        created_at: when the policy said it.
        changed_at: when its state last changed.
        changed_by: who changed it last.
        num_changes: load levels at which it changes the Setting.
        best_gain: the largest predicted gain of the engine's total among them; None where nothing
            changes.
        best_load: the load level of that gain.
        headline: first reason of the policy.
    """

    id: int
    route: str
    state: str
    advice: Advice
    created_at: datetime
    changed_at: datetime
    changed_by: str
    num_changes: int
    best_gain: Interval | None
    best_load: LoadLevel | None
    headline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionLine:
    """One change of state."""

    at: datetime
    before: str | None
    after: str
    who: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationView:
    """The page of one recommendation.

    Attributes:
        line: what the list shows.
        said: what the policy said, whole.
        transitions: oldest first.
        actions: actions its state allows, as names of :class:`dashboards.console.Act`.
        realised: what it brought; None where its plan never came into force.
        gate: the evidence on each proposed Setting, from this route.
    """

    line: RecommendationLine
    said: Recommendation
    transitions: tuple[TransitionLine, ...]
    actions: tuple[str, ...]
    realised: Realised | None
    gate: tuple[GateLine, ...] = ()
