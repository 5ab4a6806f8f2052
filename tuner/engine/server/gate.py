"""ASGI layers in front of the application: request ids, the key, and the time before loading ends.

Plain ASGI, so that disconnects and streams pass through untouched.
"""

from __future__ import annotations

import hmac
import uuid
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.engine.errors import (
    CaptureForbidden,
    EngineError,
    EngineUnavailable,
    Unauthorized,
    UnknownHost,
)
from tuner.engine.listening import is_loopback
from tuner.engine.server.errors import error_response

HEALTH_PATH = "/health"
CAPTURE_PREFIX = "/spec/capture"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")

_ID_PREFIXES = {"/v1/completions": "cmpl-", "/v1/chat/completions": "chatcmpl-"}


class RequestIds:
    """Gives every request an id, in its state and in the header ``x-request-id``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _ID_PREFIXES.get(scope["path"], "req-") + uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


class KeyCheck:
    """Asks for the API key on every path but the health check."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._expected = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] != "http" or scope["path"] == HEALTH_PATH or self._is_known(scope):
            await self._app(scope, receive, send)
            return
        error = Unauthorized("the API key is missing or wrong; send Authorization: Bearer KEY")
        await error_response(error)(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        is_same = hmac.compare_digest(key.strip().encode("latin-1"), self._expected)
        return is_same and scheme.lower() == "bearer"


class HostGuard:
    """Answers only requests that name this engine, so that DNS rebinding leads nowhere.

    Stands where no key is asked for. What was captured is given to this machine only: to no
    request that a proxy passed on.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str]) -> None:
        self._app = app
        self._allowed = frozenset(host.lower().strip("[]") for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        error = None if scope["type"] != "http" else self._refusal(scope)
        await (self._app if error is None else error_response(error))(scope, receive, send)

    def _refusal(self, scope: Scope) -> EngineError | None:
        headers = Headers(scope=scope)
        named = headers.getlist("host")
        if len(named) != 1 or _host_name(named[0]) not in self._allowed:
            shown = named[0][:80] if named else ""
            return UnknownHost(
                f"host {shown!r} is not served here; use 127.0.0.1, or start the engine with "
                "--allowed-host or --api-key"
            )
        if not scope["path"].startswith(CAPTURE_PREFIX):
            return None
        peer = scope.get("client")
        if peer is not None and is_loopback(peer[0]) and not any(n in headers for n in _FORWARDED):
            return None
        return CaptureForbidden(
            "captured prompts are given to this machine only; start the engine with --api-key "
            "and send the key"
        )


def _host_name(header: str) -> str:
    """Return the host of a Host header in lower case, without port or brackets."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


class HeadAsGet:
    """Answers HEAD wherever GET is answered; the server sends the headers alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        await self._app({**scope, "method": "GET"} if is_head else scope, receive, send)


class StartupGate:
    """Answers 503 until the application is there, then gets out of the way.

    Attributes:
        app: the application; None while the model loads.
    """

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if self.app is not None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            error = EngineUnavailable("the engine is loading its model; try again in a few seconds")
            await error_response(error)(scope, receive, send)
