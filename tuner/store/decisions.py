"""Which Setting was in force where, and how likely it was to be: the log of decisions.

Rows of one moment are one decision, in force until the next one. A place without a row of its own
has what the row without route and load level says. Where nothing was drawn a row names the arm that
was sure alone, since plans are logged for every window that is drawn for.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from collectors.records import LoadLevel, Plan, PlanEntry, Setting, load_level_named
from collectors.records.parsing import items, number, text
from policy.lottery import Chance, Place
from tuner.store import arms
from tuner.store.schema import DecisionRow
from tuner.store.statements import changed_rows, insert_rows, lock_by_name

ANYWHERE: Place = ("", LoadLevel(low=0, high=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A plan that came into force.

    Attributes:
        engine: engine name.
        at_s: since when, Unix seconds.
        plan: the plan.
        policy_version: program and options that decided or advised.
        who: token name of an operator, or the name of a job.
        arms: the Settings there were to choose from.
        chances: where arms were drawn; everywhere else the plan's was sure.
        seed: of the generator that drew; None where nothing was drawn.
        until_s: end of the window that was drawn for, Unix seconds; None likewise.
    """

    engine: str
    at_s: float
    plan: Plan
    policy_version: str
    who: str
    arms: tuple[Setting, ...]
    chances: tuple[Chance, ...] = ()
    seed: int | None = None
    until_s: float | None = None

    def chance_at(self, place: Place, at_s: float = -math.inf) -> Chance:
        """Return how likely each arm was at a place; what was drawn for one window is sure after.

        Args:
            place: route and load level.
            at_s: end of the window asked about, Unix seconds.
        """
        if self.until_s is None or at_s <= self.until_s:
            for chance in self.chances:
                if (chance.route, chance.load) == place:
                    return chance
        return Chance.certain(place, self.plan.setting_for(*place), self.arms)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLog:
    """Decisions in the order of time."""

    decisions: tuple[Decision, ...]

    def throughout(self, start_s: float, end_s: float, least_share: float) -> Decision | None:
        """Return the decision in force in nearly all of [start_s, end_s); None without one.

        Args:
            start_s: start of a window, Unix seconds.
            end_s: end of it.
            least_share: share of the window that it must have been in force for.
        """
        first = bisect_right(self.decisions, start_s, key=lambda one: one.at_s)
        last = bisect_left(self.decisions, end_s, key=lambda one: one.at_s)
        until_s = end_s
        for decision in reversed(self.decisions[max(0, first - 1) : last]):
            if until_s - max(decision.at_s, start_s) >= least_share * (end_s - start_s):
                return decision
            until_s = decision.at_s
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLog:
    """The plans in force, in the order of time, whatever was drawn.

    Attributes:
        starts_s: when each came into force, Unix seconds.
        plans: the plans, neighbours unequal.
    """

    starts_s: tuple[float, ...]
    plans: tuple[Plan, ...]

    def throughout(self, start_s: float, end_s: float) -> Plan | None:
        """Return the plan in force in all of [start_s, end_s), Unix seconds; None without one."""
        place = bisect_right(self.starts_s, start_s) - 1
        is_whole = place == bisect_left(self.starts_s, end_s) - 1
        return self.plans[place] if place >= 0 and is_whole else None


def note(session: Session, decision: Decision) -> bool:
    """Log a decision; False where nothing was drawn and the newest one logged brought the same.

    Of two at one moment, as clocks that were set back give them, the second comes just after.
    """
    lock_by_name(session, f"decisions {decision.engine}")
    newest = session.execute(
        select(DecisionRow.at_s, DecisionRow.plan_digest)
        .where(DecisionRow.engine == decision.engine)
        .order_by(DecisionRow.at_s.desc())
        .limit(1)
    ).first()
    if newest is not None:
        if newest.plan_digest == decision.plan.digest and not decision.chances:
            return False
        after_s = math.nextafter(newest.at_s, math.inf)
        decision = replace(decision, at_s=max(decision.at_s, after_s))
    places = _places(decision)
    drawn = {(one.route, one.load): one for one in decision.chances}
    chances = [drawn.get(place) or _sure(place, decision.plan) for place in places]
    sure = Chance.certain(ANYWHERE, decision.plan.default, decision.arms)
    keys = arms.remember(session, {arm for one in (*chances, sure) for arm, _ in one.arms})
    rows = [
        _row(decision, place, decision.plan.setting_for(*place), chance, keys)
        for place, chance in zip(places, chances, strict=True)
    ]
    elsewhere = _row(decision, ANYWHERE, decision.plan.default, sure, keys)
    insert_rows(session, DecisionRow, [*rows, {**elsewhere, "load": ""}])
    return True


def log_of(session: Session, engine: str, start_s: float, end_s: float) -> DecisionLog:
    """Return the decisions in force between two moments, Unix seconds."""
    rows = session.scalars(
        select(DecisionRow)
        .where(*_are_between(session, engine, start_s, end_s))
        .order_by(DecisionRow.at_s, DecisionRow.id)
    ).all()
    settings = arms.by_key(session)
    by_moment = groupby(rows, key=lambda row: row.at_s)
    return DecisionLog(decisions=tuple(_decision(list(found), settings) for _, found in by_moment))


def plans_of(session: Session, engine: str, start_s: float, end_s: float) -> PlanLog:
    """Return the plans in force between two moments, Unix seconds; each is read once."""
    moments = session.execute(
        select(DecisionRow.at_s, DecisionRow.plan_digest)
        .where(*_are_between(session, engine, start_s, end_s), DecisionRow.route == "")
        .order_by(DecisionRow.at_s)
    ).all()
    changes = [next(same) for _, same in groupby(moments, key=lambda row: row.plan_digest)]
    last = {digest: at_s for at_s, digest in changes}
    rows = session.scalars(
        select(DecisionRow)
        .where(DecisionRow.engine == engine, DecisionRow.at_s.in_(list(last.values())))
        .order_by(DecisionRow.at_s, DecisionRow.id)
    ).all()
    settings = arms.by_key(session)
    plans = {
        found[0].plan_digest: _decision(found, settings).plan
        for found in (list(same) for _, same in groupby(rows, key=lambda row: row.at_s))
    }
    return PlanLog(
        starts_s=tuple(at_s for at_s, _ in changes),
        plans=tuple(plans[digest] for _, digest in changes),
    )


def _are_between(
    session: Session, engine: str, start_s: float, end_s: float
) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of decisions in force between two moments."""
    before = session.scalars(
        select(func.max(DecisionRow.at_s)).where(
            DecisionRow.engine == engine, DecisionRow.at_s <= start_s
        )
    ).one()
    return (
        DecisionRow.engine == engine,
        DecisionRow.at_s >= (start_s if before is None else before),
        DecisionRow.at_s <= end_s,
    )


def delete_before(session: Session, engine: str, oldest_s: float) -> int:
    """Delete decisions that were replaced before a moment; return how many rows."""
    in_force = session.scalars(
        select(func.max(DecisionRow.at_s)).where(
            DecisionRow.engine == engine, DecisionRow.at_s <= oldest_s
        )
    ).one()
    if in_force is None:
        return 0
    return changed_rows(
        session,
        delete(DecisionRow).where(DecisionRow.engine == engine, DecisionRow.at_s < in_force),
    )


def _places(decision: Decision) -> Sequence[Place]:
    named = [(entry.route, entry.load) for entry in decision.plan.entries]
    return list(dict.fromkeys([*named, *((c.route, c.load) for c in decision.chances)]))


def _row(
    decision: Decision,
    place: Place,
    setting: Setting,
    chance: Chance,
    keys: Mapping[Setting, str],
) -> dict[str, object]:
    return {
        "engine": decision.engine,
        "at_s": decision.at_s,
        "plan_digest": decision.plan.digest,
        "policy_version": decision.policy_version,
        "who": decision.who,
        "route": place[0],
        "load": place[1].label,
        "setting": keys[setting],
        "propensity": chance.of(setting),
        "arms": [[keys[arm], share] for arm, share in chance.arms],
        "seed": decision.seed,
        "until_s": decision.until_s,
    }


def _decision(rows: Sequence[DecisionRow], settings: Mapping[str, Setting]) -> Decision:
    own = [row for row in rows if row.route]
    rest = next(row for row in rows if not row.route)
    return Decision(
        engine=rest.engine,
        at_s=rest.at_s,
        plan=Plan(
            default=settings[rest.setting],
            entries=tuple(
                PlanEntry(
                    route=row.route,
                    load=load_level_named(row.load),
                    setting=settings[row.setting],
                )
                for row in own
            ),
        ),
        policy_version=rest.policy_version,
        who=rest.who,
        arms=tuple(arm for arm, _ in _arms(rest, settings)),
        chances=tuple(_chance(row, settings) for row in own if len(_arms(row, settings)) > 1),
        seed=rest.seed,
        until_s=rest.until_s,
    )


def _sure(place: Place, plan: Plan) -> Chance:
    return Chance.certain(place, plan.setting_for(*place), ())


def _chance(row: DecisionRow, settings: Mapping[str, Setting]) -> Chance:
    return Chance(route=row.route, load=load_level_named(row.load), arms=_arms(row, settings))


def _arms(row: DecisionRow, settings: Mapping[str, Setting]) -> tuple[tuple[Setting, float], ...]:
    pairs: Iterable[object] = row.arms if isinstance(row.arms, list) else ()
    return tuple(_arm(pair, settings) for pair in pairs)


def _arm(pair: object, settings: Mapping[str, Setting]) -> tuple[Setting, float]:
    key, share = items({"arm": pair}, "arm")
    named = {"key": key, "share": share}
    return settings[text(named, "key")], number(named, "share")
