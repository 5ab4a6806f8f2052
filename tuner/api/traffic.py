"""What the overview and the route page read from the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from dashboards.console import PERIODS_S
from dashboards.errors import InvalidAction, NotFound
from dashboards.views import AlarmLine, AutopilotLine, EngineHealth, Overview, RouteView
from policy.materiality import snooze_line
from policy.types import Window
from tuner.api.cells import cells_of, load_totals
from tuner.api.curves import cost_rows, curves_of, draft_rows, history_of, setting_rows
from tuner.api.decisions import changes_of, lines_of
from tuner.api.drifting import alarm_line
from tuner.api.live_plan import LivePlan, LivePlanReader
from tuner.api.standing import in_force, worst
from tuner.api.sums import grouped
from tuner.settings import Settings
from tuner.store import Store, drift, envelopes, facts, jobs, observations, recommendations
from tuner.store.envelopes import EnvelopeState, StoredEnvelope
from tuner.store.recommendations import State, StoredRecommendation
from tuner.workflows.refusals import refusals_of

INGEST_JOB = "ingest"
_OPEN = (State.PENDING, State.HELD, State.APPROVED, State.STAGED)
_SILENT = (State.SUPERSEDED, State.EXPIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficReader:
    """Reads traffic views.

    Attributes:
        store: open store.
        settings: engine name, limits, known routes.
        live: finds the live plan.
        now: tells the time, aware UTC.
    """

    store: Store
    settings: Settings
    live: LivePlanReader
    now: Callable[[], datetime]

    def overview(self, period_s: int) -> Overview:
        """Return the overview (see ``dashboards.console.Console``)."""
        at, live = self.now(), self.live.read()
        with self.store.reading() as session:
            windows = self._windows(session, period_s, at)
            newest = self._telling(session)
            waiting = recommendations.listed(
                session, engine=self.settings.engine_name, states=(State.PENDING,)
            )
            health = self._health(session, live, at)
            alarms = self._alarms(session)
            standing = in_force(session, self.settings.engine_name)
            loser = worst(
                session, self.settings.engine_name, self.settings.routes, windows, standing
            )
            last_s = facts.last_at_s(session, self.settings.engine_name)
            flying = envelopes.current(session, self.settings.engine_name)
        start, end = _span(windows)
        return Overview(
            at=at,
            period_s=period_s,
            start=start,
            end=end,
            engines=(health,),
            cells=cells_of(windows, live.plan, newest),
            loads=load_totals(windows),
            waiting=sum(bool(changes_of(one.said)) for one in waiting),
            alarms=alarms,
            last_traffic_at=_moment(last_s) or end,
            worst=loser,
            in_force=standing,
            autopilot=tuple(_autopilot_line(one) for one in flying),
        )

    def route(self, name: str, period_s: int) -> RouteView:
        """Return one route (see ``dashboards.console.Console``)."""
        live = self.live.read()
        with self.store.reading() as session:
            windows = self._windows(session, period_s, self.now())
            said = recommendations.listed(
                session, engine=self.settings.engine_name, route=name, limit=20
            )
            lines = lines_of(session, said)
            standing = in_force(session, self.settings.engine_name)
            refusals = refusals_of(session, self.settings.engine_name, name)
            newest = self._telling(session)
            alarms = self._alarms(session)
        seen = [one for window in windows for one in window.observations if one.route == name]
        cells = cells_of(windows, live.plan, newest, name)
        if not (seen or cells or lines or name in self._known_names()):
            raise NotFound(
                f"no route is called {name!r} in the last {period_s} s; see the overview"
            )
        start, end = _span(windows)
        return RouteView(
            name=name,
            period_s=period_s,
            start=start,
            end=end,
            cells=cells,
            settings=setting_rows(seen),
            curves=curves_of(seen),
            history=history_of(windows, name),
            costs=cost_rows(windows),
            draft_costs=draft_rows(windows),
            recommendations=lines,
            alarms=tuple(one for one in alarms if one.route in (None, name)),
            in_force=tuple(one for one in standing if one.route == name),
            snoozed=tuple(snooze_line(one) for one in refusals),
        )

    def _windows(self, session: Session, period_s: int, at: datetime) -> tuple[Window, ...]:
        if period_s not in PERIODS_S:
            legal = ", ".join(str(period) for period in PERIODS_S)
            raise InvalidAction(f"period {period_s} s is not offered; use one of: {legal}")
        end_s = at.timestamp()
        return observations.between(session, self.settings.engine_name, end_s - period_s, end_s + 1)

    def _telling(self, session: Session) -> dict[str, StoredRecommendation]:
        listed = recommendations.listed(session, engine=self.settings.engine_name)
        by_route = grouped(listed, lambda one: one.route)
        told = {route: telling(said) for route, said in by_route.items()}
        return {route: said for route, said in told.items() if said is not None}

    def _alarms(self, session: Session) -> tuple[AlarmLine, ...]:
        found = drift.alarms(session, self.settings.engine_name, open_only=True)
        return tuple(alarm_line(one) for one in found)

    def _known_names(self) -> frozenset[str]:
        return frozenset(route.name for route in self.settings.routes)

    def _health(self, session: Session, live: LivePlan, at: datetime) -> EngineHealth:
        name = self.settings.engine_name
        cursor = facts.latest_cursor(session, name)
        pulled_at = _moment(cursor.pulled_s) if cursor else None
        silent_s = (at - pulled_at).total_seconds() if pulled_at else None
        is_stale = silent_s is None or silent_s > self.settings.stale_after_s
        return EngineHealth(
            engine=name,
            url=self.settings.engine_url,
            boot_id=cursor.boot_id if cursor else None,
            last_pull_at=pulled_at,
            cursor=cursor.last_seq if cursor else 0,
            lost_steps=facts.totals(session, name).lost if cursor else 0,
            plan_version=live.plan.version if live.plan else None,
            plan_digest=live.digest,
            is_stale=is_stale,
            problem=(_ingest_error(session) if is_stale else None) or live.problem,
        )


def telling(said: Sequence[StoredRecommendation]) -> StoredRecommendation | None:
    """Return what an overview should tell of one route's recommendations, newest first.

    A change that waits or is under way, else the one in force, else the newest that still speaks:
    "no change" said after a promotion must not hide what was promoted.
    """
    speaking = [one for one in said if one.state not in _SILENT]
    for states in (_OPEN, (State.PROMOTED,)):
        for one in speaking:
            if one.state in states and changes_of(one.said):
                return one
    return speaking[0] if speaking else None


def _ingest_error(session: Session) -> str | None:
    newest = jobs.listed(session, job=INGEST_JOB, limit=1)
    return newest[0].error if newest else None


def _moment(at_s: float | None) -> datetime | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)


def _span(windows: Sequence[Window]) -> tuple[datetime | None, datetime | None]:
    return (
        _moment(min((window.start_s for window in windows), default=None)),
        _moment(max((window.end_s for window in windows), default=None)),
    )


def _autopilot_line(one: StoredEnvelope) -> AutopilotLine:
    return AutopilotLine(
        engine=one.engine,
        route=one.route,
        is_active=one.state is EnvelopeState.ACTIVE,
        changes=one.num_changes,
        fallbacks=one.num_fallbacks,
    )
