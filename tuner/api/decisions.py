"""From stored recommendations to what the recommendation pages show."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.console import Act
from dashboards.views import RecommendationLine, RecommendationView, TransitionLine
from policy.realised import Realised
from policy.types import LoadChange, Recommendation
from tuner.store.recommendations import State, StoredRecommendation, Transition

ACTS_BY_STATE: dict[State, tuple[Act, ...]] = {
    State.PENDING: (Act.APPROVE, Act.HOLD, Act.REJECT),
    State.HELD: (Act.APPROVE, Act.REJECT),
    State.PROMOTED: (Act.ROLL_BACK,),
}


def line_of(stored: StoredRecommendation, history: Sequence[Transition]) -> RecommendationLine:
    """Return what a list shows of a recommendation."""
    said = stored.said
    changed = changes_of(said)
    best = max(changed, key=lambda change: change.engine_total.mean, default=None)
    last = history[-1] if history else None
    return RecommendationLine(
        id=stored.id,
        route=said.route,
        state=stored.state,
        advice=said.advice,
        created_at=stored.created_at,
        changed_at=last.at if last else stored.created_at,
        changed_by=last.who if last else "",
        num_changes=len(changed),
        best_gain=best.engine_total.minus_one if best else None,
        best_load=best.load if best else None,
        headline=said.reasons[0] if said.reasons else "",
    )


def view_of(
    stored: StoredRecommendation, history: Sequence[Transition], realised: Realised | None
) -> RecommendationView:
    """Return what the page of a recommendation shows."""
    return RecommendationView(
        line=line_of(stored, history),
        said=stored.said,
        transitions=tuple(
            TransitionLine(
                at=step.at,
                before=None if step.before is None else step.before.value,
                after=step.after.value,
                who=step.who,
                why=step.why,
            )
            for step in history
        ),
        actions=tuple(act.value for act in acts_of(stored)),
        realised=realised,
    )


def acts_of(stored: StoredRecommendation) -> tuple[Act, ...]:
    """Return what may be done; where nothing would change there is nothing to decide."""
    return ACTS_BY_STATE.get(stored.state, ()) if changes_of(stored.said) else ()


def changes_of(said: Recommendation) -> list[LoadChange]:
    """Return the load levels at which the Setting would change."""
    return [change for change in said.changes if change.proposed != change.current]
