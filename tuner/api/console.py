"""``dashboards.console.Console`` on the store and the review workflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from collectors.errors import CollectorError
from collectors.records import PinnedConfig
from dashboards.access import Actor, Role
from dashboards.console import DEFAULT_PERIOD_S, Act
from dashboards.errors import (
    ConsoleError,
    EngineRefused,
    InvalidAction,
    NotFound,
    StateConflict,
    Unavailable,
)
from dashboards.views import (
    AlarmLine,
    AuditLine,
    DivergenceLine,
    DivergenceView,
    GateLine,
    JobLine,
    JobRun,
    JobsView,
    Overview,
    RecommendationLine,
    RecommendationView,
    ReplayLine,
    ReplayView,
    RouteView,
    TokenLine,
)
from tuner import errors
from tuner.api import proofs, tokens
from tuner.api.decisions import lines_of, view_of
from tuner.api.drifting import alarm_line
from tuner.api.gates import Gatekeeper
from tuner.api.traffic import TrafficReader
from tuner.api.trail import trail_of
from tuner.store import (
    Store,
    access,
    audit,
    divergences,
    drift,
    jobs,
    pinned,
    recommendations,
    replays,
    route_proofs,
)
from tuner.store.recommendations import State, StoredRecommendation

MAX_RUNS = 100
MAX_RUNS_EACH = 8


class Reviewer(Protocol):
    """The review workflow: does what an operator decided, or raises a ``TunerError``."""

    def __call__(
        self, number: int, act: Act, *, who: str, why: str, revision: int | None = None
    ) -> None:
        """Move a recommendation and bring its plan into force."""

    def together(self, numbers: Sequence[int], *, who: str, why: str) -> None:
        """Approve several recommendations as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConsole:
    """Implements ``Console``; every method opens its own transaction.

    Attributes:
        store: open store.
        traffic: reads overview and routes.
        review: the review workflow.
        timetable: jobs as they are scheduled, without their runs.
        now: tells the time, aware UTC.
        gatekeeper: shows and makes the evidence of the gate; None shows none.
    """

    store: Store
    traffic: TrafficReader
    review: Reviewer
    timetable: Sequence[JobLine]
    now: Callable[[], datetime]
    gatekeeper: Gatekeeper | None = None

    def overview(self, period_s: int = DEFAULT_PERIOD_S) -> Overview:
        """Return what every route saw lately at each load level, and the engines' health."""
        with errors_as_answers():
            return self.traffic.overview(period_s)

    def route(self, name: str, period_s: int = DEFAULT_PERIOD_S) -> RouteView:
        """Return what one route saw lately."""
        with errors_as_answers():
            return self.traffic.route(name, period_s)

    def states(self) -> tuple[str, ...]:
        """Return the states a recommendation can be in."""
        return tuple(state.value for state in State)

    def recommendations(self, state: str | None = None) -> tuple[RecommendationLine, ...]:
        """Return recommendations, newest first."""
        if state is not None and state not in self.states():
            legal = ", ".join(self.states())
            raise InvalidAction(f"no state is called {state!r}; use one of: {legal}")
        states = () if state is None else (State(state),)
        with errors_as_answers(), self.store.reading() as session:
            return lines_of(session, recommendations.listed(session, states=states))

    def recommendation(self, number: int, seen: int | None = None) -> RecommendationView:
        """Return one recommendation, and what changed since a revision was seen."""
        with errors_as_answers(), self.store.reading() as session:
            stored = recommendations.one(session, number)
            view = view_of(session, stored, seen)
        return replace(view, gate=self._gate_of(stored))

    def run_gate(self, number: int, actor: Actor) -> RecommendationView:
        """Have each Setting of a recommendation evaluated on its route, and return it."""
        if self.gatekeeper is None:
            raise Unavailable("this service has no engine to evaluate on")
        with errors_as_answers():
            with self.store.reading() as session:
                stored = recommendations.one(session, number)
            asked = self.gatekeeper.run(stored, who=actor.name)
        detail = f"{asked} evaluations" if asked else "under way already"
        self._note(actor, "gate.run", f"recommendation {number}", detail)
        return self.recommendation(number)

    def decide(
        self, number: int, act: Act, actor: Actor, reason: str, revision: int | None = None
    ) -> RecommendationView:
        """Do what an operator decided, note it, and return the recommendation afterwards."""
        why = checked_reason(act, reason)
        try:
            with errors_as_answers():
                self.review(number, act, who=actor.name, why=why, revision=revision)
        except ConsoleError as refusal:
            self._note(actor, f"recommendation.{act}", f"recommendation {number}", refusal)
            raise
        self._note(actor, f"recommendation.{act}", f"recommendation {number}", why)
        return self.recommendation(number)

    def approve_together(
        self, numbers: Sequence[int], actor: Actor, reason: str
    ) -> tuple[RecommendationView, ...]:
        """Approve several recommendations as one, note it, and return them afterwards."""
        why = checked_reason(Act.APPROVE, reason)
        target = f"recommendations {', '.join(str(number) for number in numbers)}"
        try:
            with errors_as_answers():
                self.review.together(numbers, who=actor.name, why=why)
        except ConsoleError as refusal:
            self._note(actor, "recommendation.approve_together", target, refusal)
            raise
        self._note(actor, "recommendation.approve_together", target, why)
        return tuple(self.recommendation(number) for number in numbers)

    def alarms(self) -> tuple[AlarmLine, ...]:
        """Return drift alarms, newest first."""
        engine = self.traffic.settings.engine_name
        with errors_as_answers(), self.store.reading() as session:
            return tuple(alarm_line(one) for one in drift.alarms(session, engine))

    def acknowledge(self, number: int, actor: Actor, reason: str) -> AlarmLine:
        """Note that somebody looked at an alarm, and return it."""
        why = one_line("acknowledge", reason, is_needed=True)
        with errors_as_answers(), self.store.writing() as session:
            stored = drift.acknowledge(session, number, who=actor.name, why=why, at=self.now())
        return alarm_line(stored)

    def replays(self) -> tuple[ReplayLine, ...]:
        """Return shadow replays, newest first."""
        with errors_as_answers(), self.store.reading() as session:
            return tuple(
                proofs.replay_line(
                    stored, pinned.one(session, stored.base), pinned.one(session, stored.other)
                )
                for stored in replays.listed(session)
            )

    def replay(self, number: int) -> ReplayView:
        """Return one replay."""
        with errors_as_answers(), self.store.reading() as session:
            stored = replays.one(session, number)
            return proofs.replay_view(
                stored,
                pinned.one(session, stored.base),
                pinned.one(session, stored.other),
                replays.pairs(session, number),
                route_proofs.speeds_of(session, number),
            )

    def divergences(self) -> tuple[DivergenceLine, ...]:
        """Return divergence reports, newest first."""
        with errors_as_answers(), self.store.reading() as session:
            return tuple(
                proofs.divergence_line(stored, pinned.one(session, stored.tested))
                for stored in divergences.listed(session)
            )

    def divergence(self, number: int) -> DivergenceView:
        """Return one divergence report."""
        with errors_as_answers(), self.store.reading() as session:
            stored = divergences.one(session, number)
            tested = pinned.one(session, stored.tested)
            pairs = divergences.pairs(session, number)
            by_route = route_proofs.outputs_of(session, number)
            return proofs.divergence_view(stored, tested, pairs, by_route)

    def jobs(self, job: str | None = None) -> JobsView:
        """Return the timetable and the newest runs: of one job, or some of each."""
        names = [line.name for line in self.timetable]
        if job is not None and job not in names:
            raise NotFound(f"no job is called {job!r}; the timetable has: {', '.join(names)}")
        shown, limit = (names, MAX_RUNS_EACH) if job is None else ([job], MAX_RUNS)
        with errors_as_answers(), self.store.reading() as session:
            newest = {name: _run(run) for name, run in jobs.latest_by_job(session).items()}
            found = [run for name in shown for run in jobs.listed(session, job=name, limit=limit)]
        return JobsView(
            timetable=tuple(replace(line, last=newest.get(line.name)) for line in self.timetable),
            runs=tuple(_run(run) for run in sorted(found, key=lambda run: -run.id)),
        )

    def audit(self) -> tuple[AuditLine, ...]:
        """Return what was done by whom, newest first."""
        with errors_as_answers(), self.store.reading() as session:
            return trail_of(session, self.traffic.settings.engine_name)

    def pinned(self, digest: str) -> PinnedConfig:
        """Return one pinned configuration."""
        with errors_as_answers(), self.store.reading() as session:
            return pinned.one(session, digest)

    def tokens(self) -> tuple[TokenLine, ...]:
        """Return all access tokens."""
        with errors_as_answers(), self.store.reading() as session:
            return tuple(_token(token) for token in access.listed(session))

    def create_token(self, name: str, role: Role, actor: Actor) -> str:
        """Make a token and return it."""
        if not name or len(name) > tokens.MAX_NAME or not name.isprintable():
            raise InvalidAction(
                f"token name {name[:80]!r} must have 1 to {tokens.MAX_NAME} printable characters"
            )
        if any(line.name == name and line.revoked_at is None for line in self.tokens()):
            raise InvalidAction(f"a token is called {name!r} already; revoke it or take another")
        with errors_as_answers():
            return tokens.issue(self.store, name=name, role=role, at=self.now(), by=actor.name)

    def revoke_token(self, number: int, actor: Actor) -> TokenLine:
        """End a token and every session that it opened."""
        with errors_as_answers(), self.store.writing() as session:
            revoked = access.revoke(session, number, self.now())
        self._note(actor, "token.revoke", f"token {number} {revoked.name!r}", "")
        return _token(revoked)

    def _gate_of(self, stored: StoredRecommendation) -> tuple[GateLine, ...]:
        """Return the evidence; none while the engine does not tell its configuration."""
        if self.gatekeeper is None or State(stored.state) not in (State.PENDING, State.HELD):
            return ()
        try:
            return self.gatekeeper.lines(stored)
        except (CollectorError, errors.TunerError):
            return ()

    def _note(self, actor: Actor, action: str, target: str, detail: str | ConsoleError) -> None:
        entry = audit.AuditEntry(
            at=self.now(),
            who=actor.name,
            action=action,
            target=target,
            outcome="refused" if isinstance(detail, ConsoleError) else "done",
            detail=str(detail),
        )
        with self.store.writing() as session:
            audit.add(session, entry)


@contextmanager
def errors_as_answers() -> Iterator[None]:
    """Turn errors of the service into the console's, cause kept."""
    try:
        yield
    except errors.NotFound as error:
        raise NotFound(str(error)) from error
    except (errors.StateChanged, errors.StoreConflict, errors.NotEvaluated) as error:
        raise StateConflict(str(error)) from error
    except errors.ActuatorError as error:
        raise EngineRefused(str(error)) from error
    except errors.BadRequest as error:
        raise InvalidAction(str(error)) from error
    except errors.TunerError as error:
        raise Unavailable(str(error)) from error


def checked_reason(act: Act, reason: str) -> str:
    """Return a reason on one line.

    Raises:
        InvalidAction: it is missing where one is needed, or too long.
    """
    return one_line(act.label.lower(), reason, is_needed=act is not Act.APPROVE)


def one_line(verb: str, reason: str, *, is_needed: bool) -> str:
    """Return the reason for doing something on one line.

    Raises:
        InvalidAction: it is missing where one is needed, too long, or no plain text.
    """
    why = " ".join(reason.split())
    if not why and is_needed:
        raise InvalidAction(f"to {verb}, give a reason; it is kept with the decision")
    most = audit.MAX_REASON
    if len(why) > most:
        raise InvalidAction(f"the reason has {len(why)} characters; keep it within {most}")
    with errors_as_answers():
        return audit.reason_line(why) if why else ""


def _run(run: jobs.JobRun) -> JobRun:
    return JobRun(
        id=run.id,
        job=run.job,
        due_at=run.due_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        outcome=run.outcome,
        duration_s=run.duration_s,
        note=run.error or run.detail,
    )


def _token(token: access.AccessToken) -> TokenLine:
    return TokenLine(
        id=token.id,
        name=token.name,
        role=Role(token.role),
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )
