"""Errors of the command line and the exit codes of everybody else's.

Exit code 2 means that the user can fix it by another value; 1 is every other failure.
"""

from __future__ import annotations

from collectors.errors import InvalidRecord
from policy.errors import InvalidInput
from tuner.engine.errors import StartupError
from tuner.errors import (
    BadRequest,
    NotEvaluated,
    NotFound,
    NothingToDo,
    SchemaOutdated,
    StateChanged,
)

USER_ERRORS = (
    BadRequest,
    InvalidInput,
    InvalidRecord,
    NotEvaluated,
    NotFound,
    NothingToDo,
    SchemaOutdated,
    StartupError,
    StateChanged,
)


class UsageError(BadRequest):
    """An option has a value that cannot be used."""


class CommandFailed(Exception):
    """A command could not finish; the message says why."""


def exit_code_of(error: BaseException) -> int:
    """Return 2 where another value given by the user helps, else 1."""
    return 2 if isinstance(error, USER_ERRORS) else 1


def one_line(error: BaseException) -> str:
    """Return what to tell the user: the message, or the kind of error where there is none."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
