"""How a recommendation stands: its evidence, what it brought, and what is snoozed on its route."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from policy.evidence_amount import EvidenceAmount
from policy.materiality import snooze_line
from policy.outcome import Outcome
from policy.realised import Realised
from tuner.store import evidence
from tuner.store.recommendations import StoredRecommendation
from tuner.workflows.realised import measured
from tuner.workflows.refusals import refusals_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a recommendation stands now.

    Attributes:
        brought: rates before and since; None where its plan never came into force.
        outcomes: predicted beside measured, by load level.
        amount: evidence behind it; None where it was stored before that was counted.
        snoozed: what was refused on its route and stays away for now, one sentence each.
    """

    brought: Realised | None
    outcomes: tuple[Outcome, ...]
    amount: EvidenceAmount | None
    snoozed: tuple[str, ...]


def standing_of(session: Session, stored: StoredRecommendation) -> Standing:
    """Return how a recommendation stands."""
    found = measured(session, stored)
    newest = evidence.newest(session, stored.id)
    refusals = refusals_of(session, stored.engine, stored.route)
    return Standing(
        brought=None if found is None else found[0],
        outcomes=() if found is None else found[1],
        amount=None if newest is None else newest.amount,
        snoozed=tuple(snooze_line(one) for one in refusals),
    )
