"""Errors of the service. The message names the id, the value and the fix.

``TunerError`` is what the command line and the API turn into one line; the subclasses say whose
turn it is. ``is_retryable`` marks what may go away by itself.
"""

from __future__ import annotations


class TunerError(Exception):
    """Something the service could not do."""

    is_retryable = False


class BadRequest(TunerError, ValueError):
    """A value given by a user means nothing here; the message names it and the legal ones."""


class NotFound(TunerError, LookupError):
    """There is no row with this id."""


class StateChanged(TunerError):
    """Somebody else changed the row first, or its state does not allow the step."""


class Outdated(StateChanged):
    """What an operator decides about changed since it was shown; the message says what to open."""


class StoreUnavailable(TunerError):
    """The database did not answer or stayed locked; retryable."""

    is_retryable = True


class StoreConflict(TunerError):
    """The database refused a row that contradicts another."""


class SchemaOutdated(TunerError):
    """The database is not at the revision this program was written for."""


class CursorMoved(TunerError):
    """Another reader stored these journal records first; nothing was written."""

    is_retryable = True


class JournalWentBack(TunerError):
    """A journal holds less than was already read in the same boot."""


class ActuatorError(TunerError):
    """A plan could not be brought into force."""


class PlanConflict(ActuatorError):
    """Another plan was live than the one the change was made for; nothing was changed."""


class PlanRefused(ActuatorError):
    """The engine refused the plan; the old one stays in force."""


class EngineUnreachable(ActuatorError):
    """The engine did not answer; retryable."""

    is_retryable = True


class OutcomeUnknown(ActuatorError):
    """The engine fell silent in the middle of a change; it is settled when it answers again."""

    is_retryable = True


class ReadBackMismatch(ActuatorError):
    """The live plan is not the one that was sent; the message names both digests."""


class NotEvaluated(TunerError):
    """A Setting lacks the evaluation that its approval needs; the message says which."""


class NothingToDo(TunerError):
    """There is no input to work on, such as no captured request; the message says how to get it."""


class EngineBusy(TunerError):
    """Other requests run where an idle engine is needed; retryable."""

    is_retryable = True


class Interrupted(TunerError):
    """The service is stopping; what was done so far is stored."""

    is_retryable = True


class LeaseLost(TunerError):
    """Another service holds the lease now; this one must not write."""
