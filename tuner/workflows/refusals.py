"""What operators rejected or rolled back, so that it is not proposed again without new evidence."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.orm import Session

from collectors.records import LoadLevel, Setting
from policy.materiality import Refusal, changed, headline
from tuner.store import evidence, recommendations
from tuner.store.recommendations import REFUSED, StoredRecommendation


def refusals_of(session: Session, engine: str, route: str) -> tuple[Refusal, ...]:
    """Return by load level and Setting what was refused on a route and not proposed again since.

    A later recommendation of the same Setting at the same load level was made on evidence that had
    changed, so that it ends the refusal.
    """
    listed = recommendations.listed(session, engine=engine, route=route)
    return tuple(_newest_word(session, listed))


def _newest_word(session: Session, listed: tuple[StoredRecommendation, ...]) -> Iterator[Refusal]:
    seen: set[tuple[LoadLevel, Setting]] = set()
    for stored in listed:
        places = {(one.load, one.proposed) for one in changed(stored.said)} - seen
        seen |= places
        if stored.state in REFUSED and places:
            yield from _refusals(session, stored, places)


def _refusals(
    session: Session, stored: StoredRecommendation, places: set[tuple[LoadLevel, Setting]]
) -> Iterator[Refusal]:
    last = recommendations.transitions(session, stored.id)[-1]
    shown = evidence.newest(session, stored.id)
    for change in changed(stored.said):
        if (change.load, change.proposed) in places:
            yield Refusal(
                load=change.load,
                setting=change.proposed,
                headline=headline(change),
                passes=0 if shown is None else shown.amount.passes,
                recommendation=stored.id,
                verb=stored.state.value.replace("_", " "),
                who=last.who,
                at_s=last.at.timestamp(),
                why=last.why,
            )
