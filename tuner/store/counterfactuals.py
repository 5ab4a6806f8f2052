"""Scores of lookup drafting on captured answers: facts like steps, counted and deleted alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from collectors.counterfactual import LookupScore
from collectors.records import LOAD_LEVELS, Setting
from collectors.records.parsing import items
from policy.types import Evidence, Observation
from tuner.store import arms
from tuner.store.coding import integers
from tuner.store.counts import Span
from tuner.store.facts import Cursor
from tuner.store.schema import CounterfactualRow
from tuner.store.statements import changed_rows, insert_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """What one Setting would have got accepted on answers of one route.

    Attributes:
        route: route name.
        setting: the Setting.
        is_greedy: True where the answers were greedy, False where they were sampled.
        score: the counts.
    """

    route: str
    setting: Setting
    is_greedy: bool
    score: LookupScore


def add(
    session: Session, cursor: Cursor, last_seq: int, at_s: float, found: Sequence[Counterfactual]
) -> None:
    """Store the scores of a page of captures, in the transaction that moves its cursor.

    Args:
        session: of ``store.writing()``.
        cursor: cursor of the captures.
        last_seq: newest sequence number of the page.
        at_s: when they were scored, Unix seconds.
        found: the scores.
    """
    keys = arms.remember(session, {one.setting for one in found})
    rows = [
        {
            "cursor": cursor.id,
            "seq": last_seq,
            "place": place,
            "engine": cursor.engine,
            "at_s": at_s,
            "route": one.route,
            "setting": keys[one.setting],
            "is_greedy": one.is_greedy,
            **_counts(one.score),
        }
        for place, one in enumerate(found)
    ]
    insert_rows(session, CounterfactualRow, rows)


def observations(session: Session, span: Span) -> tuple[Observation, ...]:
    """Return one observation per route, Setting and sampling.

    Acceptance does not depend on load, and a score has none: it stands at the lowest level.
    """
    rows = session.scalars(
        select(CounterfactualRow)
        .where(
            CounterfactualRow.engine == span.engine,
            CounterfactualRow.at_s >= span.start_s,
            CounterfactualRow.at_s < span.end_s,
        )
        .order_by(CounterfactualRow.id)
    )
    totals: dict[tuple[str, str, bool | None], LookupScore] = {}
    settings = arms.by_key(session)
    for row in rows:
        key, score = (row.route, row.setting, row.is_greedy), _score(row, settings[row.setting].k)
        totals[key] = totals[key].plus(score) if key in totals else score
    return tuple(
        Observation(
            route=route,
            setting=settings[setting],
            load=LOAD_LEVELS[0],
            evidence=Evidence.COUNTERFACTUAL,
            start_s=span.start_s,
            end_s=span.end_s,
            passes=score.passes,
            verify_passes=score.verify_passes,
            drafted=score.drafted,
            accepted=score.accepted,
            tokens=score.passes + score.accepted,
            attempts=score.attempts,
            accepts=score.accepts,
            is_greedy=greedy,
        )
        for (route, setting, greedy), score in totals.items()
    )


def delete_before(session: Session, engine: str, before_s: float) -> int:
    """Delete scores older than a moment, and return how many went."""
    is_old = (CounterfactualRow.engine == engine) & (CounterfactualRow.at_s < before_s)
    return changed_rows(session, delete(CounterfactualRow).where(is_old))


def _counts(score: LookupScore) -> dict[str, object]:
    return {
        "passes": score.passes,
        "verify_passes": score.verify_passes,
        "drafted": score.drafted,
        "accepted": score.accepted,
        "tokens": score.passes + score.accepted,
        "attempts": list(score.attempts),
        "accepts": list(score.accepts),
    }


def _score(row: CounterfactualRow, k: int) -> LookupScore:
    counts = {"attempts": row.attempts, "accepts": row.accepts}
    return LookupScore(
        k=k,
        passes=row.passes,
        verify_passes=row.verify_passes,
        drafted=row.drafted,
        accepted=row.accepted,
        attempts=integers(items(counts, "attempts")),
        accepts=integers(items(counts, "accepts")),
    )
