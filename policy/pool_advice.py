"""Advice to move routes to a pool of engines without speculation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collectors.records import LoadLevel, Setting
from policy.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAdvice:
    """What routes would gain by moving to a pool of engines without speculation.

    Advice for people: nothing of this product moves a route to another pool.

    Attributes:
        load: the load level.
        leaves: the routes that move, all together.
        settings: Setting of each route that stays.
        gain: goodput of an engine, over both pools, over that of the proposed plan, less 1.
        reason: one sentence.
    """

    load: LoadLevel
    leaves: tuple[str, ...]
    settings: Mapping[str, Setting]
    gain: Interval
    reason: str
