"""Routes, load levels and the plan that gives each pair its Setting."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from collectors.errors import InvalidRecord
from collectors.records.parsing import (
    JsonObject,
    as_object,
    digest_of,
    integer,
    items,
    require,
    text,
)
from collectors.records.setting import OFF, Setting

OTHER_ROUTE = "other"
CALIBRATION_ROUTE = "calibration"
"""Requests sent to time steps; what they get accepted says nothing of any traffic."""

_ROUTE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def require_route_name(name: str) -> None:
    """Refuse a route name that could not be a bounded metric label."""
    require(
        _ROUTE_NAME.fullmatch(name) is not None,
        f"route {name!r} is not a name: use 1 to 64 letters, digits, '_', '.' or '-'",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A class of traffic.

    Attributes:
        name: the metric label and plan key.
        tpot_limit_s: objective for time per output token, in seconds; None for no objective.
        ttft_limit_s: objective for time to first token, in seconds; None for no objective.
        half_life_s: age at which its evidence counts half, in seconds; None for that of all routes.
        is_private: never captured.
    """

    name: str
    tpot_limit_s: float | None = None
    ttft_limit_s: float | None = None
    half_life_s: float | None = None
    is_private: bool = False

    def __post_init__(self) -> None:
        """Refuse names that are not labels and limits that are not positive."""
        require_route_name(self.name)
        for limit in (self.tpot_limit_s, self.ttft_limit_s):
            require(limit is None or limit > 0, f"a limit must be > 0 seconds, got {limit}")
        half_life_s = self.half_life_s
        require(
            half_life_s is None or half_life_s > 0,
            f"a half-life must be > 0 seconds, got {half_life_s}",
        )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LoadLevel:
    """A range of sequences running on the engine in one step, both ends included."""

    low: int
    high: int

    @property
    def label(self) -> str:
        """Such as ``1`` or ``5-8``."""
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    @property
    def is_lone(self) -> bool:
        """True where a step holds one sequence at most, so that routes share nothing."""
        return self.high == 1


LOAD_LEVELS = tuple(
    LoadLevel(low=low, high=high)
    for low, high in ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 1024))
)


def load_level_of(running: int) -> LoadLevel:
    """Return the level that holds a number of running sequences (0 counts as 1)."""
    for level in LOAD_LEVELS:
        if running <= level.high:
            return level
    return LOAD_LEVELS[-1]


def load_level_named(label: str) -> LoadLevel:
    """Return the level with this label.

    Raises:
        InvalidRecord: no level has it.
    """
    for level in LOAD_LEVELS:
        if level.label == label:
            return level
    legal = ", ".join(level.label for level in LOAD_LEVELS)
    raise InvalidRecord(f"unknown load level {label!r}; use one of: {legal}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """The Setting of one route at one load level."""

    route: str
    load: LoadLevel
    setting: Setting

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        return {"route": self.route, "load": self.load.label, "setting": self.setting.to_dict()}

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form."""
        route = text(data, "route")
        require_route_name(route)
        return cls(
            route=route,
            load=load_level_named(text(data, "load")),
            setting=Setting.from_dict(as_object(data.get("setting"), "setting")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which Setting each route has at each load level; what is not named gets the default.

    Attributes:
        version: rises by one with each change.
        default: the Setting of every route and load level without an entry.
        entries: at most one per route and load level.
    """

    version: int = 0
    default: Setting = OFF
    entries: tuple[PlanEntry, ...] = ()

    def __post_init__(self) -> None:
        """Refuse two entries for one place."""
        places = [(entry.route, entry.load) for entry in self.entries]
        for place in places:
            require(
                places.count(place) == 1,
                f"plan names route {place[0]} at load {place[1].label} twice; keep one entry",
            )
        require(self.version >= 0, f"plan version must be >= 0, got {self.version}")

    @property
    def digest(self) -> str:
        """Sha256 over what the plan does (its version left out)."""
        ordered = sorted(self.entries, key=lambda entry: (entry.route, entry.load))
        return digest_of([self.default.to_dict(), [entry.to_dict() for entry in ordered]])

    def setting_for(self, route: str, load: LoadLevel) -> Setting:
        """Return the Setting in force for a route at a load level."""
        for entry in self.entries:
            if entry.route == route and entry.load == load:
                return entry.setting
        return self.default

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        return {
            "version": self.version,
            "default": self.default.to_dict(),
            "entries": [entry.to_dict() for entry in self.entries],
        }

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form; unknown keys are refused."""
        unknown = sorted(set(data) - {"version", "default", "entries", "digest"})
        require(not unknown, f"unknown plan key {unknown}; known: version, default, entries")
        return cls(
            version=integer(data, "version", 0),
            default=Setting.from_dict(as_object(data.get("default", {}), "default")),
            entries=tuple(
                PlanEntry.from_dict(as_object(entry, "plan entry"))
                for entry in items(data, "entries")
            ),
        )
