"""Measure what is in force, keep it, and raise an alarm where a prediction was missed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from policy.drift_alarms import Alarm, AlarmKind
from policy.outcome import Outcome, telling
from tuner.store import drift, outcomes, recommendations
from tuner.store.recommendations import State, StoredRecommendation
from tuner.workflows.realised import measured
from tuner.workflows.site import Site


def note_outcomes(site: Site) -> int:
    """Measure every recommendation in force again; return how many predictions are missed."""
    with site.store.writing() as session:
        promoted = recommendations.listed(session, engine=site.engine, states=(State.PROMOTED,))
        missed = [
            alarm for stored in promoted if (alarm := _measure(site, session, stored)) is not None
        ]
        drift.note_alarms(session, site.engine, missed, site.now())
        routes = {alarm.route for alarm in missed}
        drift.end_kind(
            session, site.engine, AlarmKind.PREDICTION_MISSED, keep=routes, at=site.now()
        )
    return len(missed)


def _measure(site: Site, session: Session, stored: StoredRecommendation) -> Alarm | None:
    found = measured(session, stored)
    if found is None:
        return None
    brought, results = found
    outcomes.note(session, stored.id, results, site.now())
    worst = telling(results)
    if worst is None or not worst.is_missed:
        return None
    return _alarm(site, stored, worst, results, brought.since_s)


def _alarm(
    site: Site,
    stored: StoredRecommendation,
    worst: Outcome,
    results: Sequence[Outcome],
    since_s: float,
) -> Alarm:
    return Alarm(
        kind=AlarmKind.PREDICTION_MISSED,
        route=stored.route,
        since_s=since_s,
        seen_s=site.clock(),
        saw=f"Recommendation {stored.id} on {stored.route}: {worst}.",
        advice=(
            f"Roll recommendation {stored.id} back where it costs; later predictions get wider "
            "intervals."
        ),
        figures={
            "recommendation": float(stored.id),
            "predicted": worst.predicted.mean,
            "realised": worst.realised.mean,
            "missed_levels": float(sum(one.is_missed for one in results)),
        },
    )
