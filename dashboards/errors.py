"""Errors that a console may answer with. The message names the value and the fix."""

from __future__ import annotations

from http import HTTPStatus


class ConsoleError(Exception):
    """Something asked of the console cannot be done."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR
    code = "console_error"


class NotFound(ConsoleError):
    """Nothing has this name or number."""

    status = HTTPStatus.NOT_FOUND
    code = "not_found"


class InvalidAction(ConsoleError):
    """The action or one of its values is not legal."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "invalid_action"


class StateConflict(ConsoleError):
    """Somebody else changed it first, or its state does not allow the action."""

    status = HTTPStatus.CONFLICT
    code = "state_conflict"


class EngineRefused(ConsoleError):
    """The engine could not be reached or did not take the plan; nothing was changed."""

    status = HTTPStatus.BAD_GATEWAY
    code = "engine_refused"


class Unavailable(ConsoleError):
    """The database, or something else behind the console, does not answer now."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "unavailable"


class SignInNeeded(ConsoleError):
    """Nobody is signed in, or the session is over."""

    status = HTTPStatus.UNAUTHORIZED
    code = "sign_in_needed"


class NotAllowed(ConsoleError):
    """The role is too low, or the form is not one of ours."""

    status = HTTPStatus.FORBIDDEN
    code = "not_allowed"


class TooManyAttempts(ConsoleError):
    """Too many wrong tokens from one address."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "too_many_attempts"
