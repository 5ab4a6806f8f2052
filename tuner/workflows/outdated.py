"""Whether what an operator decides about is what they were shown."""

from __future__ import annotations

from sqlalchemy.orm import Session

from policy.materiality import looks_the_same
from tuner.errors import Outdated
from tuner.store import evidence, recommendations
from tuner.store.evidence import Revision
from tuner.store.recommendations import State, StoredRecommendation


def require_current(session: Session, stored: StoredRecommendation, seen: int | None) -> None:
    """Refuse to act on a recommendation that changed under the operator's hand.

    Args:
        session: of the store.
        stored: the recommendation.
        seen: revision on the page decided on; None where none was shown.

    Raises:
        Outdated: it is superseded, or its figures read differently now; the message names what to
            look at instead.
    """
    if stored.state is State.SUPERSEDED:
        newest = newest_of_chain(session, stored)
        if newest.id != stored.id:
            raise Outdated(f"recommendation {stored.id} is superseded by #{newest.id}, open it")
    if seen_revision(session, stored, seen) is not None:
        raise Outdated(
            f"recommendation {stored.id} was updated from revision {seen} to {stored.revision} "
            "since this page was made; compare the figures and decide again"
        )


def newest_of_chain(session: Session, stored: StoredRecommendation) -> StoredRecommendation:
    """Return what replaced a recommendation in the end; itself where nothing did."""
    while stored.successor is not None:
        stored = recommendations.one(session, stored.successor)
    return stored


def seen_revision(
    session: Session, stored: StoredRecommendation, seen: int | None
) -> Revision | None:
    """Return the figures that a page showed; None where they read as they do now."""
    if seen is None or seen == stored.revision:
        return None
    shown = [one for one in evidence.revisions(session, stored.id) if one.number == seen]
    if not shown or looks_the_same(shown[0].changes, stored.said.changes):
        return None
    return shown[0]
