"""The seam through which pages and JSON API read and act; the service implements it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from collectors.records import PinnedConfig
from dashboards.access import Actor, Role
from dashboards.views import (
    AlarmLine,
    AuditLine,
    DivergenceLine,
    DivergenceView,
    JobsView,
    Overview,
    RecommendationLine,
    RecommendationView,
    ReplayLine,
    ReplayView,
    RouteView,
    TokenLine,
)

PERIODS_S = (300, 3600, 21_600)
"""How far back a page may look."""
DEFAULT_PERIOD_S = 3600


class Act(StrEnum):
    """What an operator may do to a recommendation."""

    APPROVE = "approve"
    REJECT = "reject"
    HOLD = "hold"
    ROLL_BACK = "roll_back"

    @property
    def label(self) -> str:
        """The word on the button."""
        return self.value.replace("_", " ").capitalize()


class Console(Protocol):
    """Everything the pages need. Methods are blocking and may be called from many threads."""

    def overview(self, period_s: int = DEFAULT_PERIOD_S) -> Overview:
        """Return what every route saw lately at each load level, and the engines' health.

        Raises:
            InvalidAction: the period is not one of PERIODS_S.
        """

    def route(self, name: str, period_s: int = DEFAULT_PERIOD_S) -> RouteView:
        """Return what one route saw lately.

        Raises:
            InvalidAction: the period is not one of PERIODS_S.
            NotFound: no traffic, rule or recommendation has this name.
        """

    def recommendations(self, state: str | None = None) -> tuple[RecommendationLine, ...]:
        """Return recommendations, newest first; with a state, only those in it.

        Raises:
            InvalidAction: there is no such state.
        """

    def states(self) -> tuple[str, ...]:
        """Return the states a recommendation can be in, in the order of its life."""

    def recommendation(self, number: int, seen: int | None = None) -> RecommendationView:
        """Return one recommendation, and what changed since a revision of it was seen.

        Raises:
            NotFound: no recommendation has this number.
        """

    def decide(
        self, number: int, act: Act, actor: Actor, reason: str, revision: int | None = None
    ) -> RecommendationView:
        """Do what an operator decided, and return the recommendation afterwards.

        Args:
            number: number of the recommendation.
            act: what to do.
            actor: who decides; the role was checked by the caller.
            reason: why, one line; may be empty only to approve.
            revision: revision that the operator was shown; None takes the newest.

        Raises:
            NotFound: no recommendation has this number.
            InvalidAction: a reason is missing or too long.
            StateConflict: its state does not allow it, somebody was first, or it was superseded or
                updated since it was shown.
            EngineRefused: the engine did not take the plan; nothing changed.
        """

    def approve_together(
        self, numbers: Sequence[int], actor: Actor, reason: str
    ) -> tuple[RecommendationView, ...]:
        """Approve several recommendations as one: all come into force, or none does.

        Raises:
            NotFound: no recommendation has one of these numbers.
            InvalidAction: they are no set, or the reason is too long.
            StateConflict: a state does not allow it, somebody was first, or one is superseded.
            EngineRefused: the engine did not take the plan; nothing changed.
        """

    def run_gate(self, number: int, actor: Actor) -> RecommendationView:
        """Have each proposed Setting evaluated on the route; what is under way is not begun twice.

        Raises:
            NotFound: no recommendation has this number.
            InvalidAction: the engine cannot run a proposed Setting.
            Unavailable: the engine does not answer.
        """

    def alarms(self) -> tuple[AlarmLine, ...]:
        """Return drift alarms, newest first, those that are over too."""

    def acknowledge(self, number: int, actor: Actor, reason: str) -> AlarmLine:
        """Note that somebody looked at an alarm, so that it stops nothing, and return it.

        Raises:
            NotFound: no alarm has this number.
            InvalidAction: the reason is missing or too long.
        """

    def replays(self) -> tuple[ReplayLine, ...]:
        """Return shadow replays, newest first."""

    def replay(self, number: int) -> ReplayView:
        """Return one replay.

        Raises:
            NotFound: no replay has this number.
        """

    def divergences(self) -> tuple[DivergenceLine, ...]:
        """Return divergence reports, newest first."""

    def divergence(self, number: int) -> DivergenceView:
        """Return one divergence report.

        Raises:
            NotFound: no report has this number.
        """

    def pinned(self, digest: str) -> PinnedConfig:
        """Return one pinned configuration.

        Raises:
            NotFound: none has this digest.
        """

    def jobs(self, job: str | None = None) -> JobsView:
        """Return the timetable and the newest runs: of one job, or some of each.

        Raises:
            NotFound: no job of the timetable has this name.
        """

    def audit(self) -> tuple[AuditLine, ...]:
        """Return what was done by whom, newest first, whichever way it was done."""

    def tokens(self) -> tuple[TokenLine, ...]:
        """Return all access tokens, without the tokens themselves."""

    def create_token(self, name: str, role: Role, actor: Actor) -> str:
        """Make a token and return it; it cannot be read again.

        Raises:
            InvalidAction: the name is empty, too long or taken.
        """

    def revoke_token(self, number: int, actor: Actor) -> TokenLine:
        """End a token and every session that it opened.

        Raises:
            NotFound: no token has this number.
        """
