"""A change that somebody made to the plan in force, as the review of it needs to know."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.records import LoadLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEdit:
    """One change of an entry of the plan in force.

    Attributes:
        route: route name.
        load: the load level.
        at_s: when, Unix seconds.
    """

    route: str
    load: LoadLevel
    at_s: float
