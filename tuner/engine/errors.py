"""Every error of the engine, with the HTTP status and the words OpenAI's clients expect.

The message is one line that names the value and the fix. `StartupError` and its kind end the
process with exit code 2 before it serves anything; the others become an HTTP answer.
"""

from __future__ import annotations

from typing import ClassVar


class EngineError(Exception):
    """The engine failed.

    Attributes:
        status: HTTP status of the answer.
        kind: ``error.type`` in OpenAI's error object.
        code: ``error.code``; None where there is no word for it.
        param: the request parameter at fault; None where it is no single one.
    """

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(EngineError):
    """A parameter has a value that cannot be served."""

    status = 400
    kind = "invalid_request_error"


class ContextTooLong(InvalidRequest):
    """Prompt and answer do not fit into the context."""

    code = "context_length_exceeded"


class BodyTooLarge(InvalidRequest):
    """The body is longer than the server reads."""

    status = 413
    code = "body_too_large"


class UnknownModel(EngineError):
    """The request names a model that is not served here."""

    status = 404
    kind = "invalid_request_error"
    code = "model_not_found"


class Unauthorized(EngineError):
    """The key is missing or wrong."""

    status = 401
    kind = "invalid_request_error"
    code = "invalid_api_key"


class UnknownHost(EngineError):
    """The request names a host that the engine does not answer for."""

    status = 421
    kind = "invalid_request_error"
    code = "unknown_host"


class CaptureForbidden(EngineError):
    """Captured prompts are shown to this machine only, or with the key."""

    status = 403
    kind = "invalid_request_error"
    code = "capture_forbidden"


class QueueFull(EngineError):
    """The bounded queue holds no more requests.

    Attributes:
        retry_after_s: whole seconds after which to try again.
    """

    status = 429
    kind = "rate_limit_error"
    code = "queue_full"

    def __init__(self, message: str, *, retry_after_s: int = 1, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class PlanConflict(EngineError):
    """Another plan is live than the one the change was made for."""

    status = 409
    kind = "invalid_request_error"
    code = "plan_conflict"


class InvalidPlan(EngineError):
    """The plan names a route, method, rule, load or draft length that the engine has not."""

    status = 422
    kind = "invalid_request_error"
    code = "invalid_plan"


class InvalidCapture(EngineError):
    """The capture settings hold a value that cannot be."""

    status = 422
    kind = "invalid_request_error"
    code = "invalid_capture"


class EngineUnavailable(EngineError):
    """The engine is loading, stopping, or has had a fatal fault."""

    status = 503
    code = "engine_unavailable"


class RequestFailed(EngineError):
    """The engine gave up on one request."""

    code = "request_failed"


class RequestCancelled(EngineError):
    """The request was cancelled; nobody waits for its answer."""

    status = 499
    code = "request_cancelled"


class StartupError(EngineError):
    """The process cannot start with these settings; it ends with `exit_code`."""

    exit_code: ClassVar[int] = 2


class ModelNotFound(StartupError):
    """No model is at the path."""


class ModelCorrupt(StartupError):
    """The files at the path are no whole model."""


class PortTaken(StartupError):
    """Another process listens on the port."""


class UnsafeHost(StartupError):
    """A host that others can reach, without an API key."""
