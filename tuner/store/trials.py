"""Live trials: what was tried where, until when, on how many tokens, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from collectors.records import LoadLevel, Plan, PlanEntry, Setting, load_level_named
from tuner.errors import StateChanged
from tuner.store import arms
from tuner.store.schema import StepGroupRow, TrialRow
from tuner.store.statements import changed_rows, lock_by_name


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A Setting on trial.

    Attributes:
        id: number; 0 before it is stored.
        engine: engine name.
        change: number of the plan change that began it; None where that is deleted.
        route: route name.
        load: the load level.
        setting: what is tried.
        former: what ran there before.
        start_s: when it began, Unix seconds.
        end_s: when it is over, Unix seconds.
        most_tokens: tokens of the route after which it is over.
        who: token name of an operator, or the name of a job.
        refusal: why the engine did not take it back; None where it was not asked or did.
        refused_change: number of that attempt.
        ended_s: when it ended, Unix seconds; None while it runs.
        tokens: tokens that it took; None while it runs.
        reason: why it ended or is being ended; None while nothing ends it.
    """

    id: int = 0
    engine: str
    change: int | None = None
    route: str
    load: LoadLevel
    setting: Setting
    former: Setting
    start_s: float
    end_s: float
    most_tokens: int
    who: str
    refusal: str | None = None
    refused_change: int | None = None
    ended_s: float | None = None
    tokens: int | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """Say what is on trial where."""
        return f"trial of {self.setting.label} on {self.route} at load {self.load.label}"

    def is_in(self, plan: Plan) -> bool:
        """True where a plan has the Setting on trial in its place."""
        return plan.setting_for(self.route, self.load) == self.setting

    def put_into(self, plan: Plan) -> Plan:
        """Return a plan with the Setting on trial in its place."""
        return self._with(plan, self.setting)

    def taken_out_of(self, plan: Plan) -> Plan:
        """Return a plan with what ran before in its place."""
        return self._with(plan, self.former)

    def _with(self, plan: Plan, setting: Setting) -> Plan:
        place = (self.route, self.load)
        kept = tuple(one for one in plan.entries if (one.route, one.load) != place)
        entry = PlanEntry(route=self.route, load=self.load, setting=setting)
        entries = kept if setting == plan.default else (*kept, entry)
        return replace(plan, version=plan.version + 1, entries=entries)


def add(session: Session, trial: StoredTrial) -> int:
    """Store a trial that begins and return its number.

    Raises:
        StateChanged: another one is open on the engine.
    """
    lock_by_name(session, f"trials {trial.engine}")
    other = open_on(session, trial.engine)
    if other is not None:
        raise StateChanged(
            f"the {other.name} on {trial.engine} is not over; one at a time tells what it did"
        )
    keys = arms.remember(session, (trial.setting, trial.former))
    row = TrialRow(
        engine=trial.engine,
        change=trial.change,
        route=trial.route,
        load=trial.load.label,
        setting=keys[trial.setting],
        former=keys[trial.former],
        start_s=trial.start_s,
        end_s=trial.end_s,
        most_tokens=trial.most_tokens,
        who=trial.who,
    )
    session.add(row)
    session.flush()
    return row.id


def open_on(session: Session, engine: str) -> StoredTrial | None:
    """Return the trial that has not ended; None without one."""
    row = session.scalars(
        select(TrialRow).where(TrialRow.engine == engine, TrialRow.ended_s.is_(None))
    ).first()
    return None if row is None else _trial(row, arms.by_key(session))


def in_plan_of(session: Session, engine: str, change: int) -> StoredTrial | None:
    """Return the trial that a plan change still holds: the open one, or the one it began."""
    row = session.scalars(
        select(TrialRow)
        .where(TrialRow.engine == engine, TrialRow.ended_s.is_(None) | (TrialRow.change == change))
        .order_by(TrialRow.id.desc())
        .limit(1)
    ).first()
    return None if row is None else _trial(row, arms.by_key(session))


def since(session: Session, engine: str, start_s: float) -> tuple[StoredTrial, ...]:
    """Return the trials that ran after a moment, oldest first."""
    rows = session.scalars(
        select(TrialRow)
        .where(
            TrialRow.engine == engine,
            (TrialRow.ended_s.is_(None)) | (TrialRow.ended_s >= start_s),
        )
        .order_by(TrialRow.id)
    ).all()
    settings = arms.by_key(session)
    return tuple(_trial(row, settings) for row in rows)


def tokens_of(session: Session, trial: StoredTrial) -> int:
    """Return the live tokens of its route that a trial took, as far as the journal was read.

    Records that came in after its end count too, while facts of its time are kept.
    """
    query = select(func.sum(StepGroupRow.tokens)).where(
        StepGroupRow.engine == trial.engine,
        StepGroupRow.at_s >= trial.start_s,
        StepGroupRow.route == trial.route,
        StepGroupRow.load == trial.load.label,
        StepGroupRow.setting == arms.key_of(trial.setting),
        StepGroupRow.is_shadow.is_(False),
    )
    if trial.ended_s is not None:
        query = query.where(StepGroupRow.at_s <= trial.ended_s)
    return max(int(session.scalars(query).one() or 0), trial.tokens or 0)


def note_reason(session: Session, trial: StoredTrial, reason: str) -> None:
    """Note why a trial is being ended, before the engine is asked: whoever ends it says so."""
    changed_rows(
        session,
        update(TrialRow)
        .where(TrialRow.id == trial.id, TrialRow.ended_s.is_(None))
        .values(reason=reason),
    )


def end(session: Session, trial: StoredTrial, at_s: float, reason: str) -> bool:
    """Note that a trial is over and what it took; False where that was noted already.

    A reason that stands there from when its end began stays.
    """
    tokens = tokens_of(session, trial)
    ended = changed_rows(
        session,
        update(TrialRow)
        .where(TrialRow.id == trial.id, TrialRow.ended_s.is_(None))
        .values(ended_s=at_s, tokens=tokens, reason=func.coalesce(TrialRow.reason, reason)),
    )
    return ended == 1


def note_refusal(session: Session, trial: StoredTrial, change: int, refusal: str) -> bool:
    """Note that the engine did not take a trial back; return whether that is news."""
    lock_by_name(session, f"trials {trial.engine}")
    row = session.get(TrialRow, trial.id, populate_existing=True)
    if row is None:
        return True
    is_news = row.refusal != refusal
    row.refusal, row.refused_change = refusal, change
    session.flush()
    return is_news


def delete_before(session: Session, engine: str, oldest_s: float) -> int:
    """Delete trials that ended before a moment; return how many."""
    return changed_rows(
        session,
        delete(TrialRow).where(TrialRow.engine == engine, TrialRow.ended_s < oldest_s),
    )


def _trial(row: TrialRow, settings: dict[str, Setting]) -> StoredTrial:
    return StoredTrial(
        id=row.id,
        engine=row.engine,
        change=row.change,
        route=row.route,
        load=load_level_named(row.load),
        setting=settings[row.setting],
        former=settings[row.former],
        start_s=row.start_s,
        end_s=row.end_s,
        most_tokens=row.most_tokens,
        who=row.who,
        refusal=row.refusal,
        refused_change=row.refused_change,
        ended_s=row.ended_s,
        tokens=row.tokens,
        reason=row.reason,
    )
