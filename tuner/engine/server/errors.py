"""Every failure as OpenAI's error object, in one line; tracebacks stay in the log."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from tuner.engine.errors import EngineError, QueueFull

MAX_MESSAGE_CHARS = 500

_LOGGER = logging.getLogger(__name__)


def error_body(error: EngineError) -> dict[str, object]:
    """Return OpenAI's error object."""
    return _body(error.message, error.kind, error.param, error.code)


def error_response(error: EngineError) -> Response:
    """Return the HTTP answer of an error."""
    headers = {}
    if isinstance(error, QueueFull):
        headers["retry-after"] = str(error.retry_after_s)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(error_body(error), status_code=error.status, headers=headers)


def install_error_handlers(app: FastAPI) -> None:
    """Make every failure of the application an OpenAI error object."""
    app.add_exception_handler(EngineError, _on_engine_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_query)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_fault)


def _body(message: str, kind: str, param: str | None, code: str | None) -> dict[str, object]:
    line = " ".join(message.split())
    shown = line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 3] + "..."
    return {
        "error": {
            "message": shown,
            "type": kind,
            "param": param,
            "code": code,
        }
    }


async def _on_engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    return error_response(error)


async def _on_invalid_query(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"][1:])
    message = f"{name}: {first['msg']}, got {first['input']!r}"
    return JSONResponse(_body(message, "invalid_request_error", name, None), status_code=400)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    messages = {
        404: f"unknown path {path!r}; the API is under /v1 and /spec",
        405: f"{request.method} is not allowed on {path!r}; use {_allowed(error)}",
    }
    message = messages.get(error.status_code, str(error.detail))
    return JSONResponse(
        _body(message, "invalid_request_error", None, None),
        status_code=error.status_code,
        headers=error.headers,
    )


def _allowed(error: HTTPException) -> str:
    return (error.headers or {}).get("Allow", "another method")


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def _on_fault(request: Request, error: Exception) -> Response:
    request_id = getattr(request.state, "request_id", "unknown")
    _LOGGER.error("request %s hit a fault of the engine", request_id, exc_info=error)
    message = f"the engine hit a fault of its own; its log has the cause under {request_id}"
    return JSONResponse(_body(message, "server_error", None, "internal_error"), status_code=500)
