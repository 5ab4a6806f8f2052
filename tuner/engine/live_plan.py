"""The plan in force: which Setting a row gets, changed as one piece between two steps.

The core takes one `PlanTable` at the start of a step, so that all rows of the step and the digest
in its journal record belong to the same plan.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from collectors.errors import InvalidRecord
from collectors.records import (
    CALIBRATION_ROUTE,
    LOAD_LEVELS,
    OTHER_ROUTE,
    Method,
    Plan,
    Setting,
    load_level_of,
    require_route_name,
)
from tuner.engine.capabilities import Capabilities
from tuner.engine.errors import InvalidPlan, PlanConflict, StartupError
from tuner.engine.route_names import RouteNames

MAX_ROUTES = 64

_LEVEL_LOW = tuple(load_level_of(running).low for running in range(LOAD_LEVELS[-1].high + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """A plan made ready for look-ups.

    Attributes:
        plan: the plan.
        digest: its digest.
        settings: (route, low end of the load level) to Setting.
    """

    plan: Plan
    digest: str
    settings: Mapping[tuple[str, int], Setting]

    def setting_for(self, route: str, running: int) -> Setting:
        """Return the Setting of a route while ``running`` sequences are in the batch."""
        low = _LEVEL_LOW[running] if running < len(_LEVEL_LOW) else LOAD_LEVELS[-1].low
        return self.settings.get((route, low), self.plan.default)


def _table_of(plan: Plan) -> PlanTable:
    settings = {(entry.route, entry.load.low): entry.setting for entry in plan.entries}
    return PlanTable(plan=plan, digest=plan.digest, settings=settings)


class LivePlan:
    """The plan in force and the route names the engine knows.

    Reading needs no lock: the whole table is replaced at once.
    """

    def __init__(
        self,
        routes: tuple[str, ...] | None,
        capabilities: Capabilities,
        plan: Plan | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with a plan; speculation off everywhere where none is given.

        Args:
            routes: the only legal route names; None takes names as they come, up to 64.
            capabilities: what the engine can do.
            plan: the first plan.
            clock: monotonic seconds, by which unused names lose their place.

        Raises:
            StartupError: a route name is none, or there are too many.
            InvalidPlan: the plan asks for what the engine has not.
        """
        self.capabilities = capabilities
        self.is_open = routes is None
        self._names: dict[str, None] = {OTHER_ROUTE: None}
        self._open_names = RouteNames(MAX_ROUTES, clock)
        self._lock = threading.Lock()
        self._ruled: set[tuple[Method, int]] = set()
        self._take_given(routes or ())
        first = plan or Plan()
        self._check(first)
        self._table = self._put(first)

    @property
    def routes(self) -> tuple[str, ...] | None:
        """The legal route names; None while any name is taken."""
        return None if self.is_open else tuple(self._names)

    @property
    def table(self) -> PlanTable:
        """The plan in force, ready for look-ups; take it once a step."""
        return self._table

    @property
    def current(self) -> Plan:
        """The plan in force."""
        return self._table.plan

    @property
    def digest(self) -> str:
        """Digest of the plan in force."""
        return self._table.digest

    def setting_for(self, route: str, running: int) -> Setting:
        """Return the Setting of a route while ``running`` sequences are in the batch."""
        return self._table.setting_for(route, running)

    def replace(self, plan: Plan, if_digest: str | None = None) -> Plan:
        """Bring a plan into force from the next step on.

        Args:
            plan: the plan; its version is ignored, the one in force plus 1 is given.
            if_digest: digest of the plan that must be in force; None for any.

        Raises:
            PlanConflict: another plan is in force.
            InvalidPlan: the plan names an unknown route, method, rule or drafter, or a k beyond
                the method's longest.
        """
        with self._lock:
            live = self._table
            if if_digest is not None and if_digest != live.digest:
                raise PlanConflict(
                    f"the live plan is {live.digest}, not {if_digest}; read /spec/plan again",
                    param="if_digest",
                )
            self._check(plan)
            changed = replace(plan, version=live.plan.version + 1)
            self._table = self._put(changed)
            return changed

    def has_ruled(self, setting: Setting) -> bool:
        """Tell whether a plan of this engine's life has asked for this method and draft length."""
        return (setting.method, setting.k) in self._ruled

    def reserve_routes(self, names: Iterable[str]) -> None:
        """Make sure that these names are never counted as ``other``.

        Raises:
            InvalidPlan: a name is unknown, malformed, or one too many.
        """
        with self._lock:
            self._reserve(tuple(names))

    def route_of(self, header: str | None, *, is_shadow: bool = False) -> str:
        """Return the route a header names; ``other`` where it names none that is known.

        The name of calibration requests is theirs alone: live traffic under it is ``other``.
        """
        name = (header or "").strip()
        if name == CALIBRATION_ROUTE:
            return name if is_shadow else OTHER_ROUTE
        if name in self._names:
            return name
        if not self.is_open or not _is_route_name(name):
            return OTHER_ROUTE
        with self._lock:
            if name in self._open_names:
                self._open_names.note(name)
                return name
            return name if self._open_names.take(name, self._names) else OTHER_ROUTE

    def _put(self, plan: Plan) -> PlanTable:
        table = _table_of(plan)
        settings = (plan.default, *table.settings.values())
        self._ruled = self._ruled | {(setting.method, setting.k) for setting in settings}
        return table

    def _take_given(self, routes: tuple[str, ...]) -> None:
        try:
            self._add_names(routes)
        except InvalidPlan as error:
            raise StartupError(error.message) from error

    def _check(self, plan: Plan) -> None:
        for setting in (plan.default, *(entry.setting for entry in plan.entries)):
            reason = self.capabilities.refusal_reason(setting)
            if reason is not None:
                raise InvalidPlan(reason, param="setting")
        self._reserve(tuple(entry.route for entry in plan.entries))

    def _reserve(self, names: tuple[str, ...]) -> None:
        if self.is_open:
            self._add_names(names)
            return
        for name in names:
            if name not in self._names:
                known = ", ".join(self._names)
                raise InvalidPlan(f"unknown route {name!r}; known routes: {known}", param="route")

    def _add_names(self, names: tuple[str, ...]) -> None:
        for name in names:
            try:
                require_route_name(name)
            except InvalidRecord as error:
                raise InvalidPlan(str(error), param="route") from error
            if name == CALIBRATION_ROUTE:
                raise InvalidPlan(
                    f"route {name!r} is kept for `spectuner calibrate`; choose another name",
                    param="route",
                )
        added = self._names | dict.fromkeys(names)
        if len(added) > MAX_ROUTES:
            raise InvalidPlan(
                f"{len(added) - 1} routes are named, at most {MAX_ROUTES - 1} are kept apart "
                f"from {OTHER_ROUTE!r}; name fewer",
                param="route",
            )
        self._names = added


def _is_route_name(name: str) -> bool:
    try:
        require_route_name(name)
    except InvalidRecord:
        return False
    return True
