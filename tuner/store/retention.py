"""What of decisions and proofs is old and needed no more: the rule, on one page.

Kept whatever its age: the audit, but for wrong tokens, which anybody can send; a recommendation
that is open, that somebody decided about, that the audit names, or that is the newest of its route;
its plan changes; the plan last applied and those of a trial that runs; the evaluations that an
approval stood on, the newest of each configuration, and the proofs behind them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise

from sqlalchemy import (
    Delete,
    Select,
    String,
    cast,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy.orm import InstrumentedAttribute, Session

from tuner.store.audit import REFUSED, SIGN_IN
from tuner.store.plans import Outcome
from tuner.store.recommendations import State
from tuner.store.replays import ReplayState
from tuner.store.schema import (
    AuditRow,
    DivergenceRow,
    EngineIdentityRow,
    EvaluationRow,
    PinnedConfigRow,
    PlanRow,
    RecommendationRow,
    ReplayRow,
    TransitionRow,
    TrialRow,
    WindowRow,
)
from tuner.store.statements import changed_rows

_UNDECIDED = (State.PENDING, State.SUPERSEDED, State.EXPIRED)


def delete_unneeded(session: Session, engine: str, before: datetime) -> int:
    """Delete what is older than a moment and needed no more; return how many rows."""
    before_s = before.timestamp()
    return sum(
        changed_rows(session, statement)
        for statement in (
            _windows(engine, before_s),
            _identities(engine, before_s),
            _recommendations(engine, before),
            _plans(engine, before),
            _evaluations(session, before),
            _divergences(engine, before),
            _replays(engine, before),
            _pinned_configs(before),
            _wrong_tokens(before),
        )
    )


def _windows(engine: str, before_s: float) -> Delete:
    newest = select(func.max(WindowRow.end_s)).where(WindowRow.engine == engine).scalar_subquery()
    return delete(WindowRow).where(
        WindowRow.engine == engine, WindowRow.end_s < before_s, WindowRow.end_s < newest
    )


def _identities(engine: str, before_s: float) -> Delete:
    return delete(EngineIdentityRow).where(
        EngineIdentityRow.engine == engine,
        EngineIdentityRow.at_s < before_s,
        EngineIdentityRow.id.not_in(_newest(EngineIdentityRow.id, EngineIdentityRow.engine)),
    )


def _recommendations(engine: str, before: datetime) -> Delete:
    row = RecommendationRow
    was_decided = exists().where(
        TransitionRow.recommendation == row.id, TransitionRow.to_state.not_in(_UNDECIDED)
    )
    is_audited = exists().where(
        AuditRow.target == literal("recommendation ") + cast(row.id, String)
    )
    return delete(row).where(
        row.engine == engine,
        row.state.in_((State.SUPERSEDED, State.EXPIRED)),
        row.refreshed_at < before,
        row.id.not_in(_newest(row.id, row.engine, row.route)),
        ~was_decided,
        ~is_audited,
    )


def _plans(engine: str, before: datetime) -> Delete:
    in_force = (
        select(func.max(PlanRow.id))
        .where(PlanRow.engine == engine, PlanRow.outcome == Outcome.APPLIED)
        .scalar_subquery()
    )
    is_on_trial = exists().where(
        TrialRow.ended_s.is_(None),
        or_(TrialRow.change == PlanRow.id, TrialRow.refused_change == PlanRow.id),
    )
    return delete(PlanRow).where(
        PlanRow.engine == engine,
        PlanRow.at < before,
        PlanRow.outcome != Outcome.STARTED,
        PlanRow.recommendation.is_(None),
        PlanRow.id != func.coalesce(in_force, 0),
        ~is_on_trial,
    )


def _evaluations(session: Session, before: datetime) -> Delete:
    unneeded = list(_unneeded_evaluations(session, before))
    return delete(EvaluationRow).where(EvaluationRow.id.in_(unneeded))


def _unneeded_evaluations(session: Session, before: datetime) -> Iterator[int]:
    """Give old evaluations that another one of their kind followed before any approval."""
    approvals = session.scalars(
        select(TransitionRow.at).where(TransitionRow.to_state == State.APPROVED)
    ).all()
    rows = session.execute(
        select(
            EvaluationRow.digest, EvaluationRow.route, EvaluationRow.at, EvaluationRow.id
        ).order_by(EvaluationRow.digest, EvaluationRow.route, EvaluationRow.id)
    ).all()
    for one, following in pairwise(rows):
        has_served = any(one.at <= approved_at < following.at for approved_at in approvals)
        is_same_kind = (one.digest, one.route) == (following.digest, following.route)
        if is_same_kind and one.at < before and not has_served:
            yield one.id


def _divergences(engine: str, before: datetime) -> Delete:
    return delete(DivergenceRow).where(
        DivergenceRow.engine == engine,
        DivergenceRow.created_at < before,
        ~exists().where(EvaluationRow.divergence == DivergenceRow.id),
    )


def _replays(engine: str, before: datetime) -> Delete:
    return delete(ReplayRow).where(
        ReplayRow.engine == engine,
        ReplayRow.started_at < before,
        ReplayRow.state != ReplayState.RUNNING,
        ~exists().where(EvaluationRow.replay == ReplayRow.id),
    )


def _pinned_configs(before: datetime) -> Delete:
    users = (
        ReplayRow.base,
        ReplayRow.other,
        DivergenceRow.plain,
        DivergenceRow.tested,
        EvaluationRow.digest,
    )
    is_used = or_(*(exists().where(user == PinnedConfigRow.digest) for user in users))
    return delete(PinnedConfigRow).where(PinnedConfigRow.created_at < before, ~is_used)


def _wrong_tokens(before: datetime) -> Delete:
    return delete(AuditRow).where(
        AuditRow.action == SIGN_IN, AuditRow.outcome == REFUSED, AuditRow.at < before
    )


def _newest(number: InstrumentedAttribute[int], *keys: InstrumentedAttribute[str]) -> Select[int]:
    return select(func.max(number)).group_by(*keys)
