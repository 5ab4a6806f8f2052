"""Limits of a connection: how many there may be, and how long a request may take to arrive.

Uvicorn ends idle connections between two requests only; one that never sends a whole request
would stay for ever.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tuner.engine.errors import EngineUnavailable
from tuner.engine.server.errors import error_body

DEFAULT_MAX_CONNECTIONS = 800
"""Below the 1,024 open files that a process commonly may have."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What a connection may cost.

    Attributes:
        max_connections: held open at most, idle ones included.
        headers_s: seconds in which the headers of a request must have come.
        body_s: seconds in which its body must have come after them.
    """

    max_connections: int = DEFAULT_MAX_CONNECTIONS
    headers_s: float = 15.0
    body_s: float = 120.0


class LimitedProtocol(H11Protocol):
    """One connection; its deadline moves on when headers or body are complete."""

    limits = ConnectionLimits()
    _deadline: asyncio.TimerHandle | None = None
    _awaited: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or refuse it where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            _LOGGER.warning("a connection beyond %d was refused", self.limits.max_connections)
            transport.write(_too_many(self.limits.max_connections))
            transport.close()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read what came and move the deadline on where a part is complete."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Set the deadline of what is awaited now, unless it is set."""
        state = self.conn.their_state
        is_idle = self.timeout_keep_alive_task is not None
        if state is self._awaited and self._deadline is not None and not is_idle:
            return
        self._unwatch()
        seconds = {h11.IDLE: self.limits.headers_s, h11.SEND_BODY: self.limits.body_s}.get(state)
        if seconds is not None and not is_idle:
            self._awaited = state
            self._deadline = self.loop.call_later(seconds, self._end_late)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            _LOGGER.info("a connection was closed whose request did not arrive in time")
            self.transport.close()


def limited_protocol(limits: ConnectionLimits) -> type[H11Protocol]:
    """Return uvicorn's HTTP protocol with limits."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})


def _too_many(limit: int) -> bytes:
    error = EngineUnavailable(f"{limit} connections are open, the most there may be; try again")
    body = json.dumps(error_body(error)).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\nretry-after: 1\r\n\r\n"
    )
    return head.encode() + body
