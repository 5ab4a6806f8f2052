"""Recommendations and their states. Every change of state is an appended row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from collectors.records import Plan
from collectors.records.parsing import as_object, digest_of
from policy.evidence_amount import EvidenceAmount
from policy.materiality import material_reason
from policy.types import Recommendation
from tuner.errors import NotFound, StateChanged
from tuner.store import evidence
from tuner.store.coding import recommendation_from_dict, recommendation_to_dict
from tuner.store.schema import RecommendationRow, TransitionRow
from tuner.store.statements import changed_rows, lock_by_name


class State(StrEnum):
    """How far a recommendation got; the last five are exits."""

    PENDING = "pending"
    APPROVED = "approved"
    STAGED = "staged"
    PROMOTED = "promoted"
    HELD = "held"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back"


NEXT_STATES: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.PENDING: frozenset(
            (State.APPROVED, State.REJECTED, State.HELD, State.EXPIRED, State.SUPERSEDED)
        ),
        State.HELD: frozenset((State.APPROVED, State.REJECTED, State.EXPIRED, State.SUPERSEDED)),
        State.APPROVED: frozenset((State.STAGED, State.PENDING, State.HELD)),
        State.STAGED: frozenset((State.PROMOTED, State.ROLLED_BACK)),
        State.PROMOTED: frozenset((State.ROLLED_BACK, State.SUPERSEDED)),
    }
)
"""Legal steps. Approved goes back to where it was when the plan could not be brought into force."""

REFUSED = (State.REJECTED, State.ROLLED_BACK)
OPEN = (State.PENDING, State.HELD)
_UNDER_WAY = (State.APPROVED, State.STAGED)


NOTHING = EvidenceAmount()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecommendation:
    """A recommendation and where it stands.

    Attributes:
        id: number.
        engine: engine it is for.
        state: where it stands.
        created_at: when it was first said.
        refreshed_at: when it was last said again with new figures.
        plan_digest: plan in force when it was said.
        said: what the policy said.
        revision: 1 when it was made, one more each time its figures were updated in place.
        successor: number of the recommendation that replaced it; None where none did.
    """

    id: int
    engine: str
    state: State
    created_at: datetime
    refreshed_at: datetime
    plan_digest: str
    said: Recommendation
    revision: int = 1
    successor: int | None = None

    @property
    def route(self) -> str:
        """Route it is about."""
        return self.said.route


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of state; ``before`` is None for the first."""

    before: State | None
    after: State
    who: str
    at: datetime
    why: str


def add(
    session: Session,
    engine: str,
    said: Recommendation,
    current: Plan,
    *,
    who: str,
    at: datetime,
    amount: EvidenceAmount = NOTHING,
    facts: str = "",
) -> StoredRecommendation | None:
    """Store what the policy says about a route: one is open a route, pending or held.

    The open one is updated in place, and superseded only where the change is material
    (``policy.materiality``). None where nothing was stored: the route has a change under way.

    Args:
        session: of ``store.writing()``.
        engine: engine it is for.
        said: what the policy says.
        current: plan in force.
        who: name of the job.
        at: when.
        amount: evidence behind it.
        facts: digest of the facts it was read from.
    """
    lock_by_name(session, f"recommendations {engine} {said.route}")
    latest = _latest_row(session, engine, said.route)
    if latest is not None and latest.state in _UNDER_WAY:
        return None
    row = None if latest is None or latest.state not in OPEN else latest
    reason = None if row is None else material_reason(_shown(session, row), said)
    if row is not None and reason is None:
        _update_in_place(row, said, current, at)
    else:
        row = _insert(session, engine, said, current.digest, who, at, reason)
    evidence.append(session, row.id, row.revision, said, amount=amount, facts=facts, at=at)
    return _stored(row)


def supersede(
    session: Session, number: int, successor: int, *, who: str, at: datetime, why: str
) -> None:
    """Close a recommendation that another one replaces.

    Raises:
        StateChanged: its state does not allow it, or somebody was first.
    """
    move(session, number, State.SUPERSEDED, who=who, at=at, why=why)
    session.execute(
        update(RecommendationRow).where(RecommendationRow.id == number).values(successor=successor)
    )


def _shown(session: Session, row: RecommendationRow) -> Recommendation:
    """Return what the operator was first shown of a recommendation."""
    said = _stored(row).said
    made = evidence.first(session, row.id)
    return said if made is None else replace(said, advice=made.advice, changes=made.changes)


def _update_in_place(
    row: RecommendationRow, said: Recommendation, current: Plan, at: datetime
) -> None:
    row.body, row.refreshed_at = recommendation_to_dict(said), at
    row.plan_digest, row.content = current.digest, content_digest(said)
    row.revision += 1


def content_digest(said: Recommendation) -> str:
    """Digest what is proposed, figures left out."""
    changes = [
        [change.load.label, change.current.to_dict(), change.proposed.to_dict()]
        for change in said.changes
        if change.current != change.proposed
    ]
    return digest_of([said.route, said.advice, changes])


def move(
    session: Session,
    number: int,
    to: State,
    *,
    who: str,
    at: datetime,
    why: str,
    expected: State | None = None,
) -> Transition:
    """Change the state, only if it still is what it was when read.

    Args:
        session: of ``store.writing()``.
        number: the recommendation.
        to: its next state.
        who: token name of an operator, or the name of a job.
        at: when.
        why: one line.
        expected: state that the caller saw; None takes the one found.

    Raises:
        NotFound: there is no such recommendation.
        StateChanged: the step is not legal from its state, or somebody was first.
    """
    found = one(session, number).state
    before = found if expected is None else expected
    if found != before:
        raise StateChanged(f"recommendation {number} is {found} by now, not {before}; look again")
    require_step(number, before, to)
    moved = changed_rows(
        session,
        update(RecommendationRow)
        .where(RecommendationRow.id == number, RecommendationRow.state == before)
        .values(state=to),
    )
    if moved != 1:
        raise StateChanged(f"recommendation {number} is no longer {before}; somebody was first")
    session.add(_transition_row(number, before, to, who, at, why))
    session.flush()
    return Transition(before=before, after=to, who=who, at=at, why=why)


def require_step(number: int, before: State, to: State) -> None:
    """Refuse a step that is not legal from a state.

    Raises:
        StateChanged: the message names the steps that are.
    """
    if to not in NEXT_STATES.get(before, frozenset()):
        raise StateChanged(_illegal(number, before, to))


def one(session: Session, number: int) -> StoredRecommendation:
    """Return one recommendation.

    Raises:
        NotFound: there is none with this number.
    """
    row = session.scalars(
        select(RecommendationRow)
        .where(RecommendationRow.id == number)
        .execution_options(populate_existing=True)
    ).first()
    if row is None:
        raise NotFound(f"there is no recommendation {number}; `spectuner recommend` lists them")
    return _stored(row)


def listed(
    session: Session,
    *,
    engine: str | None = None,
    route: str | None = None,
    states: Sequence[State] = (),
    limit: int = 200,
) -> tuple[StoredRecommendation, ...]:
    """Return recommendations, newest first; without states, those in any."""
    query = select(RecommendationRow).order_by(RecommendationRow.id.desc()).limit(limit)
    if engine is not None:
        query = query.where(RecommendationRow.engine == engine)
    if route is not None:
        query = query.where(RecommendationRow.route == route)
    if states:
        query = query.where(RecommendationRow.state.in_(list(states)))
    return tuple(_stored(row) for row in session.scalars(query))


def routes(session: Session, engine: str) -> tuple[str, ...]:
    """Return the routes of an engine of which anything was ever said, by name."""
    found = select(RecommendationRow.route).where(RecommendationRow.engine == engine)
    return tuple(session.scalars(found.distinct().order_by(RecommendationRow.route)))


def transitions(session: Session, number: int) -> tuple[Transition, ...]:
    """Return how a recommendation got to its state, oldest first."""
    rows = session.scalars(
        select(TransitionRow)
        .where(TransitionRow.recommendation == number)
        .order_by(TransitionRow.id)
    )
    return tuple(_transition(row) for row in rows)


def last_decision(session: Session, engine: str) -> int:
    """Return the number of the newest change of state by an engine's operators; 0 without one."""
    newest = (
        select(func.max(TransitionRow.id))
        .join(RecommendationRow, RecommendationRow.id == TransitionRow.recommendation)
        .where(RecommendationRow.engine == engine, TransitionRow.to_state.in_(REFUSED))
    )
    return session.scalars(newest).first() or 0


def _latest_row(session: Session, engine: str, route: str) -> RecommendationRow | None:
    return session.scalars(
        select(RecommendationRow)
        .where(RecommendationRow.engine == engine, RecommendationRow.route == route)
        .order_by(RecommendationRow.id.desc())
        .limit(1)
        .execution_options(populate_existing=True)
    ).first()


def _open_rows(session: Session, engine: str, route: str) -> Sequence[RecommendationRow]:
    return session.scalars(
        select(RecommendationRow).where(
            RecommendationRow.engine == engine,
            RecommendationRow.route == route,
            RecommendationRow.state.in_(OPEN),
        )
    ).all()


def _insert(
    session: Session,
    engine: str,
    said: Recommendation,
    plan_digest: str,
    who: str,
    at: datetime,
    reason: str | None = None,
) -> RecommendationRow:
    """Store a new recommendation, and close those that it replaces for a reason."""
    replaced = _open_rows(session, engine, said.route)
    why = f"replaced by newer evidence: {reason or 'it was asked anew'}"
    for open_row in replaced:
        move(session, open_row.id, State.SUPERSEDED, who=who, at=at, why=why)
    row = RecommendationRow(
        engine=engine,
        route=said.route,
        state=State.PENDING,
        advice=said.advice,
        created_at=at,
        refreshed_at=at,
        plan_digest=plan_digest,
        content=content_digest(said),
        body=recommendation_to_dict(said),
        revision=1,
    )
    session.add(row)
    session.flush()
    for open_row in replaced:
        open_row.successor = row.id
    session.add(_transition_row(row.id, None, State.PENDING, who, at, "generated"))
    session.flush()
    return row


def _transition_row(
    number: int, before: State | None, to: State, who: str, at: datetime, why: str
) -> TransitionRow:
    return TransitionRow(
        recommendation=number, from_state=before, to_state=to, who=who, at=at, why=why
    )


def _illegal(number: int, before: State, to: State) -> str:
    legal = ", ".join(sorted(NEXT_STATES.get(before, frozenset()))) or "nothing: it is closed"
    return f"recommendation {number} is {before} and cannot become {to}; it can become {legal}"


def _stored(row: RecommendationRow) -> StoredRecommendation:
    return StoredRecommendation(
        id=row.id,
        engine=row.engine,
        state=State(row.state),
        created_at=row.created_at,
        refreshed_at=row.refreshed_at,
        plan_digest=row.plan_digest,
        said=recommendation_from_dict(as_object(row.body, f"recommendation {row.id}")),
        revision=row.revision,
        successor=row.successor,
    )


def _transition(row: TransitionRow) -> Transition:
    return Transition(
        before=None if row.from_state is None else State(row.from_state),
        after=State(row.to_state),
        who=row.who,
        at=row.at,
        why=row.why,
    )
