"""The route names of an engine that takes names as they come: few, and the live ones among them.

A name takes a free place at once. Where none is free it has to come back a few times, and then
takes the place of a name that was seen once and not again, or not for a day. So a crowd of names
made up by one client neither keeps a real route out nor makes series without end.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

ONCE_S, UNUSED_S = 600.0, 86_400.0
"""Seconds after which a name's place is free: seen once only, and seen more often."""

_NUM_RETURNS = 3
_MAX_WAITING = 256
_WARNING_S = 600.0

_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class _Seen:
    times: int
    last_s: float


class RouteNames:
    """Names that hold a place; not thread-safe."""

    def __init__(self, max_names: int, clock: Callable[[], float]) -> None:
        """Start empty.

        Args:
            max_names: places.
            clock: monotonic seconds.
        """
        self._max_names = max_names
        self._clock = clock
        self._held: dict[str, _Seen] = {}
        self._waiting: OrderedDict[str, int] = OrderedDict()
        self._warned_s: float | None = None

    def __contains__(self, name: str) -> bool:
        """Tell whether a name holds a place."""
        return name in self._held

    def __len__(self) -> int:
        """Count the held places."""
        return len(self._held)

    def note(self, name: str) -> None:
        """Note that a name that holds a place was seen again."""
        seen = self._held.get(name)
        if seen is not None:
            seen.times += 1
            seen.last_s = self._clock()

    def take(self, name: str, kept: Collection[str]) -> bool:
        """Give a new name a place; tell whether there was one.

        Args:
            name: a legal name without a place.
            kept: names whose place is beyond these, or never given away.
        """
        now_s = self._clock()
        if len(self._held.keys() | set(kept)) >= self._max_names:
            if not self._has_returned(name):
                return False
            oldest = self._oldest_free(now_s, kept)
            if oldest is None:
                self._warn(name, now_s)
                return False
            del self._held[oldest]
        self._waiting.pop(name, None)
        self._held[name] = _Seen(1, now_s)
        return True

    def _has_returned(self, name: str) -> bool:
        times = self._waiting.pop(name, 0) + 1
        self._waiting[name] = times
        if len(self._waiting) > _MAX_WAITING:
            self._waiting.popitem(last=False)
        return times >= _NUM_RETURNS

    def _oldest_free(self, now_s: float, kept: Collection[str]) -> str | None:
        free = [
            (seen.last_s, name)
            for name, seen in self._held.items()
            if name not in kept and now_s - seen.last_s >= (ONCE_S if seen.times == 1 else UNUSED_S)
        ]
        return min(free)[1] if free else None

    def _warn(self, name: str, now_s: float) -> None:
        if self._warned_s is None or now_s - self._warned_s >= _WARNING_S:
            self._warned_s = now_s
            _LOGGER.warning(
                "route %r counts as other: all %d places are taken; name the routes that matter "
                "with --route",
                name,
                self._max_names,
            )
