"""What every request passes: host check, body limit, security headers. Plain ASGI, no buffering."""

from __future__ import annotations

import json
from collections.abc import Iterable
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 64 * 1024
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class HostGuard:
    """Answers only requests that name this service, so that DNS rebinding leads nowhere."""

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str]) -> None:
        self._app = app
        self._allowed = frozenset(host.lower().strip("[]") for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 421."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        named = Headers(scope=scope).getlist("host")
        host = host_name(named[0]) if len(named) == 1 else None
        if host is not None and ("*" in self._allowed or host in self._allowed):
            await self._app(scope, receive, send)
            return
        shown = named[0][:80] if named else ""
        message = f"host {shown!r} is not served here; add it to SPECTUNER_ALLOWED_HOSTS"
        await _refuse(send, HTTPStatus.MISDIRECTED_REQUEST, message, "unknown_host")


class BodyGuard:
    """Refuses bodies beyond a limit, announced or not."""

    def __init__(self, app: ASGIApp, limit_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._limit = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on while its body is within the limit, or answer 413."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdecimal() or int(announced) > self._limit:
            await self._refuse(send)
            return
        body = await self._read(receive)
        if body is None:
            await self._refuse(send)
            return
        await self._app(scope, _Replayed(body, receive), send)

    async def _read(self, receive: Receive) -> list[Message] | None:
        """Return the messages of a whole body; None where it is too long."""
        messages: list[Message] = []
        size = 0
        while True:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            if size > self._limit:
                return None
            if not message.get("more_body", False):
                return messages

    async def _refuse(self, send: Send) -> None:
        message = f"the body is longer than {self._limit} bytes; send less"
        await _refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, "body_too_long")


class _Replayed:
    """Gives messages that were read before, then whatever else comes."""

    def __init__(self, messages: list[Message], receive: Receive) -> None:
        self._messages = iter(messages)
        self._receive = receive

    async def __call__(self) -> Message:
        message = next(self._messages, None)
        return await self._receive() if message is None else message


class HeaderGuard:
    """Adds security headers; pages and answers are never kept by caches, static files may be."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and add headers to its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        cache = "no-cache" if scope["path"].startswith("/static/") else "no-store"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers["cache-control"] = cache
            await send(message)

        await self._app(scope, receive, send_with_headers)


def host_name(header: str) -> str | None:
    """Return the host of a Host header in lower case, without port or brackets; None if absurd."""
    name = header.strip().lower()
    if name.startswith("["):
        inside, closing, _ = name[1:].partition("]")
        return inside if closing else None
    return name.partition(":")[0] or None


async def _refuse(send: Send, status: HTTPStatus, message: str, code: str) -> None:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
