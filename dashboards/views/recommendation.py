"""What the recommendation pages show."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from collectors.records import LoadLevel
from dashboards.views.gate import GateLine
from policy.evidence_amount import EvidenceAmount
from policy.outcome import Outcome
from policy.realised import Realised
from policy.types import Advice, Interval, LoadChange, Recommendation


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
        outcome: predicted beside measured, where it is or was in force and could be measured: one
            that was missed if any, paired steps before others.
        is_missed: whether its measured interval has nothing in common with the predicted one.
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
    outcome: Outcome | None
    is_missed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionLine:
    """One change of state."""

    at: datetime
    before: str | None
    after: str
    who: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow:
    """One load level of a recommendation as it was shown and as it is now.

    Attributes:
        load: the load level.
        shown: what was shown; None where it did not speak of the level.
        now: what is recommended now; None likewise.
    """

    load: LoadLevel
    shown: LoadChange | None
    now: LoadChange | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What changed between the page that an operator decided on and now.

    Attributes:
        shown_id: recommendation that was shown.
        now_id: its successor, or the same where it was updated in place.
        rows: by load level, those that read differently.
    """

    shown_id: int
    now_id: int
    rows: tuple[DifferenceRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationView:
    """The page of one recommendation.

    Attributes:
        line: what the list shows.
        said: what the policy said, whole.
        transitions: oldest first.
        actions: actions its state allows, as names of :class:`dashboards.console.Act`.
        realised: what it brought; None where its plan never came into force.
        revision: 1 when it was made, one more each time its figures were updated in place.
        refreshed_at: when they were updated last.
        best: its change with the largest engine total, by which it is judged; None where it changes
            nothing.
        worst: the load level at which it may cost the engine most, by the low end; None likewise.
        slowest: the load level at which its step takes longest against that in force; None
            likewise.
        neighbours: speed of the other routes' requests there, relative change: what a longer step
            costs them; None likewise.
        joint: its change that gains most by the changes of other routes; None where it stands
            alone.
        amount: evidence behind it; None where it was stored before that was counted.
        difference: what changed since it was shown, where it was superseded or updated; else None.
        together: open recommendations of all routes that its changes count on, this one included;
            empty where it stands alone.
        snoozed: what was refused on the route and stays away for now, one sentence each.
        gate: the evidence on each proposed Setting, from this route.
    """

    line: RecommendationLine
    said: Recommendation
    transitions: tuple[TransitionLine, ...]
    actions: tuple[str, ...]
    realised: Realised | None
    revision: int
    refreshed_at: datetime
    best: LoadChange | None
    worst: LoadChange | None
    slowest: LoadChange | None
    neighbours: Interval | None
    joint: LoadChange | None
    amount: EvidenceAmount | None
    difference: Difference | None
    together: tuple[RecommendationLine, ...]
    snoozed: tuple[str, ...]
    gate: tuple[GateLine, ...] = ()
