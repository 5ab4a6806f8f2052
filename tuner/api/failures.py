"""Errors as answers: JSON under ``/api``, pages elsewhere; one line, never a traceback."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dashboards.app import error_page
from dashboards.desk import Desk
from dashboards.errors import ConsoleError, InvalidAction, NotFound, TooManyAttempts, Unavailable
from tuner.api.auth import FAILURE_WINDOW_S
from tuner.api.guards import SECURITY_HEADERS
from tuner.errors import TunerError

_LOG = logging.getLogger(__name__)
_JSON_PATHS = ("/api/", "/metrics", "/health")


def add_failures(app: FastAPI, desk: Desk) -> None:
    """Register handlers that turn every error into an answer."""

    def answer(request: Request, error: ConsoleError) -> Response:
        if request.url.path.startswith(_JSON_PATHS):
            return error_body(error)
        try:
            return error_page(desk, request, error)
        except TunerError as trouble:
            return error_body(Unavailable(str(trouble)))

    @app.exception_handler(ConsoleError)
    def refused(request: Request, error: ConsoleError) -> Response:
        return answer(request, error)

    @app.exception_handler(TunerError)
    def failed(request: Request, error: TunerError) -> Response:
        _LOG.warning("%s failed: %s", request.url.path, error)
        return answer(request, Unavailable(str(error)))

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> Response:
        return answer(request, malformed_request(request, error))

    @app.exception_handler(HTTPException)
    def refused_by_router(request: Request, error: HTTPException) -> Response:
        return answer(request, _router_error(request, error))

    @app.exception_handler(Exception)
    def broken(request: Request, error: Exception) -> Response:
        _LOG.error("%s broke", request.url.path, exc_info=error)
        body = error_body(ConsoleError("the service failed on this request; its log says why"))
        body.headers.update(SECURITY_HEADERS)  # this answer is made outside the guards
        return body


def error_body(error: ConsoleError) -> JSONResponse:
    """Return the JSON form of an error."""
    status = HTTPStatus(error.status)
    kind = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    body = {"message": str(error), "type": kind, "param": None, "code": error.code}
    headers = {}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, TooManyAttempts):
        headers["retry-after"] = f"{FAILURE_WINDOW_S:.0f}"
    return JSONResponse({"error": body}, status_code=status, headers=headers)


def malformed_request(request: Request, error: RequestValidationError) -> ConsoleError:
    """Return one line that names the first malformed value; a page number that is none is a 404."""
    detail = error.errors()[0]
    place = [str(part) for part in detail["loc"]]
    if place[0] == "path":
        return NotFound(f"there is no page {request.url.path!r}")
    name = ".".join(place[1:]) or "body"
    reason = str(detail["msg"])
    if detail["type"] == "json_invalid":
        reason = f"is not valid JSON: {detail.get('ctx', {}).get('error', 'unreadable')}"
    return InvalidAction(f"{place[0]} {name!r}: {reason}".replace("\n", " "))


def _router_error(request: Request, error: HTTPException) -> ConsoleError:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return NotFound(f"there is no page {request.url.path!r}")
    refusal = ConsoleError(f"{request.method} {request.url.path}: {error.detail}")
    refusal.status = HTTPStatus(error.status_code)
    refusal.code = refusal.status.name.lower()
    return refusal
