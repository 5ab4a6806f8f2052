"""The bounded queue of requests that wait for a slot; replayed requests wait behind live ones."""

from __future__ import annotations

from collections import deque

from tuner.engine.errors import QueueFull
from tuner.engine.row import Row


class WaitingRows:
    """Requests in order of arrival, live ones first."""

    def __init__(self, limit: int) -> None:
        """Start empty.

        Args:
            limit: requests that may wait.
        """
        self._limit = limit
        self._live: deque[Row] = deque()
        self._shadow: deque[Row] = deque()

    def __len__(self) -> int:
        """Count the waiting requests."""
        return len(self._live) + len(self._shadow)

    def push(self, *rows: Row) -> None:
        """Append the rows of one request, all or none.

        Raises:
            QueueFull: as many requests wait as may.
        """
        if len(self) + len(rows) > self._limit:
            brought = f" and this one brings {len(rows)}" if len(rows) > 1 else ""
            raise QueueFull(
                f"{len(self)} requests wait{brought}, the limit is {self._limit}; "
                "try again in a second"
            )
        for row in rows:
            (self._shadow if row.request.is_shadow else self._live).append(row)

    def pop(self, *, can_take_shadow: bool) -> Row | None:
        """Take the next request; None where none may be taken."""
        if self._live:
            return self._live.popleft()
        if self._shadow and can_take_shadow:
            return self._shadow.popleft()
        return None

    def remove(self, request_id: str) -> Row | None:
        """Take a request out of the middle; None where it does not wait."""
        for queue in (self._live, self._shadow):
            for row in queue:
                if row.request.request_id == request_id:
                    queue.remove(row)
                    return row
        return None
