"""Errors of the collectors. The message names the source, the value and the fix."""

from __future__ import annotations


class CollectorError(Exception):
    """A source could not be read."""


class InvalidRecord(CollectorError, ValueError):
    """A record holds a value that means nothing; the message names it."""


class SourceUnreachable(CollectorError):
    """The source did not answer; retryable."""


class SourceRefused(CollectorError):
    """The source answered with a refusal; permanent until somebody changes something."""
