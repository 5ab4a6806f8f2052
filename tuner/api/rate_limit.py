"""A bounded count of failures by address within a sliding window."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

MAX_ADDRESSES = 4096


class FailureLimit:
    """Says when an address failed too often lately. Safe to use from many threads."""

    def __init__(self, limit: int, window_s: float, monotonic_s: Callable[[], float]) -> None:
        self._limit = limit
        self._window_s = window_s
        self._monotonic_s = monotonic_s
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, address: str) -> float:
        """Return how long an address must wait, in seconds; 0 where it may try."""
        with self._lock:
            moments = self._recent(address)
            if len(moments) < self._limit:
                return 0.0
            return max(0.0, moments[0] + self._window_s - self._monotonic_s())

    def note_failure(self, address: str) -> None:
        """Count a failure."""
        with self._lock:
            moments = self._recent(address)
            moments.append(self._monotonic_s())
            self._failures[address] = moments
            self._failures.move_to_end(address)
            while len(self._failures) > MAX_ADDRESSES:
                self._failures.popitem(last=False)

    def _recent(self, address: str) -> deque[float]:
        moments = self._failures.get(address, deque(maxlen=self._limit))
        oldest = self._monotonic_s() - self._window_s
        while moments and moments[0] <= oldest:
            moments.popleft()
        return moments
