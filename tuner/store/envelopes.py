"""Envelopes of the control loop: who let it act on which route, and whether it acts now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from collectors.records import Method, PlanEntry, load_level_named
from collectors.records.parsing import JsonObject, as_object, integer, items, number
from policy.envelope import Envelope
from tuner.store.coding import texts
from tuner.store.schema import EnvelopeRow
from tuner.store.statements import changed_rows, lock_by_name


class EnvelopeState(StrEnum):
    """Whether the loop acts on a route."""

    ACTIVE = "active"
    PAUSED = "paused"
    """It fell back because something was stale, and goes on by itself."""
    STOPPED = "stopped"
    """It fell back or was stopped, and waits for an operator."""
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEnvelope:
    """An envelope with its history.

    Attributes:
        id: number; 0 before it is stored.
        engine: engine name.
        envelope: the bounds.
        approved: entries of the route before the loop acted: what comes back.
        state: whether the loop acts.
        at: when it was approved.
        who: who approved it.
        why: one line.
        changed_at: when its state changed last.
        changed_by: who or what changed it.
        reason: why, one line.
        is_owed: whether the engine has yet to get the approved entries back.
        num_changes: entries of the plan that the loop changed.
        num_fallbacks: times that it fell back by itself.
    """

    id: int = 0
    engine: str
    envelope: Envelope
    approved: tuple[PlanEntry, ...]
    state: EnvelopeState = EnvelopeState.ACTIVE
    at: datetime
    who: str
    why: str
    changed_at: datetime
    changed_by: str
    reason: str
    is_owed: bool = False
    num_changes: int = 0
    num_fallbacks: int = 0

    @property
    def route(self) -> str:
        """The route's name."""
        return self.envelope.route

    @property
    def is_on_autopilot(self) -> bool:
        """True while people's recommendations leave the route alone."""
        return self.state in (EnvelopeState.ACTIVE, EnvelopeState.PAUSED)


def approve(session: Session, stored: StoredEnvelope) -> int:
    """Store an envelope that replaces the route's former one; return its number."""
    lock_by_name(session, f"envelopes {stored.engine}")
    session.execute(
        update(EnvelopeRow)
        .where(
            EnvelopeRow.engine == stored.engine,
            EnvelopeRow.route == stored.route,
            EnvelopeRow.state != EnvelopeState.WITHDRAWN,
        )
        .values(
            state=EnvelopeState.WITHDRAWN,
            changed_at=stored.at,
            changed_by=stored.who,
            reason="replaced by another envelope",
            is_owed=False,
        )
    )
    row = EnvelopeRow(
        engine=stored.engine,
        route=stored.route,
        body=envelope_to_dict(stored.envelope),
        approved=[entry.to_dict() for entry in stored.approved],
        state=stored.state,
        at=stored.at,
        who=stored.who,
        why=stored.why,
        changed_at=stored.changed_at,
        changed_by=stored.changed_by,
        reason=stored.reason,
        is_owed=stored.is_owed,
        num_changes=stored.num_changes,
        num_fallbacks=stored.num_fallbacks,
    )
    session.add(row)
    session.flush()
    return row.id


def current(session: Session, engine: str) -> tuple[StoredEnvelope, ...]:
    """Return the envelopes that are not withdrawn or still owe a route its plan, by route."""
    rows = session.scalars(
        select(EnvelopeRow)
        .where(
            EnvelopeRow.engine == engine,
            (EnvelopeRow.state != EnvelopeState.WITHDRAWN) | EnvelopeRow.is_owed.is_(True),
        )
        .order_by(EnvelopeRow.route, EnvelopeRow.id)
    )
    return tuple(_stored(row) for row in rows)


def by_number(session: Session, numbers: Collection[int]) -> tuple[StoredEnvelope, ...]:
    """Return the envelopes with these numbers."""
    rows = session.scalars(select(EnvelopeRow).where(EnvelopeRow.id.in_(numbers)))
    return tuple(_stored(row) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of state.

    Attributes:
        state: the new one.
        at: when.
        who: token name of an operator, or the name of a job.
        reason: one line.
        is_owed: whether the engine has yet to get the approved entries back.
    """

    state: EnvelopeState
    at: datetime
    who: str
    reason: str
    is_owed: bool


def change(session: Session, before: StoredEnvelope, to: Change) -> bool:
    """Change an envelope's state; False where somebody else did so first."""
    return (
        changed_rows(
            session,
            update(EnvelopeRow)
            .where(EnvelopeRow.id == before.id, EnvelopeRow.state == before.state)
            .values(
                state=to.state,
                changed_at=to.at,
                changed_by=to.who,
                reason=to.reason,
                is_owed=to.is_owed,
            ),
        )
        == 1
    )


def restart(
    session: Session, before: StoredEnvelope, to: Change, approved: tuple[PlanEntry, ...]
) -> bool:
    """Let the loop act again, from the entries that are approved now."""
    if not change(session, before, to):
        return False
    session.execute(
        update(EnvelopeRow)
        .where(EnvelopeRow.id == before.id)
        .values(approved=[entry.to_dict() for entry in approved])
    )
    return True


def count_changes(session: Session, number: int, changes: int) -> None:
    """Count entries of the plan that the loop changed on a route."""
    session.execute(
        update(EnvelopeRow)
        .where(EnvelopeRow.id == number)
        .values(num_changes=EnvelopeRow.num_changes + changes)
    )


def count_fallback(session: Session, number: int) -> None:
    """Count that the loop fell back on a route by itself."""
    session.execute(
        update(EnvelopeRow)
        .where(EnvelopeRow.id == number)
        .values(num_fallbacks=EnvelopeRow.num_fallbacks + 1)
    )


def note_owed(session: Session, number: int) -> None:
    """Note that a route's approved entries have to be given back."""
    session.execute(update(EnvelopeRow).where(EnvelopeRow.id == number).values(is_owed=True))


def note_given_back(session: Session, number: int) -> None:
    """Note that the engine has a route's approved entries back, read back as live."""
    session.execute(update(EnvelopeRow).where(EnvelopeRow.id == number).values(is_owed=False))


def envelope_to_dict(envelope: Envelope) -> dict[str, object]:
    """Return the stored and printed form."""
    return {
        "route": envelope.route,
        "methods": sorted(method.value for method in envelope.methods),
        "max_k": envelope.max_k,
        "exploring_share": envelope.exploring_share,
        "loads": [load.label for load in envelope.loads],
        "keeps_limits": envelope.keeps_limits,
        "expires_s": envelope.expires_s,
    }


def _envelope_from(data: JsonObject) -> Envelope:
    return Envelope(
        route=str(data["route"]),
        methods=frozenset(Method(one) for one in texts(items(data, "methods"))),
        max_k=integer(data, "max_k"),
        exploring_share=number(data, "exploring_share"),
        loads=tuple(load_level_named(one) for one in texts(items(data, "loads"))),
        keeps_limits=bool(data["keeps_limits"]),
        expires_s=number(data, "expires_s"),
    )


def _entries(value: object) -> tuple[PlanEntry, ...]:
    data: Mapping[str, object] = {"entries": value}
    return tuple(PlanEntry.from_dict(as_object(one, "entry")) for one in items(data, "entries"))


def _stored(row: EnvelopeRow) -> StoredEnvelope:
    return StoredEnvelope(
        id=row.id,
        engine=row.engine,
        envelope=_envelope_from(as_object(row.body, f"envelope {row.id}")),
        approved=_entries(row.approved),
        state=EnvelopeState(row.state),
        at=row.at,
        who=row.who,
        why=row.why,
        changed_at=row.changed_at,
        changed_by=row.changed_by,
        reason=row.reason,
        is_owed=row.is_owed,
        num_changes=row.num_changes,
        num_fallbacks=row.num_fallbacks,
    )
