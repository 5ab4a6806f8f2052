"""ASGI layers in front of the application: request ids, the key, and the time before loading ends.

Plain ASGI, so that disconnects and streams pass through untouched.
"""

from __future__ import annotations

import hmac
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.engine.errors import EngineUnavailable, Unauthorized
from tuner.engine.server.errors import error_response

HEALTH_PATH = "/health"

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
