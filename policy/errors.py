"""Errors of the policy. The message names the value and the fix."""

from __future__ import annotations


class PolicyError(Exception):
    """A question the policy cannot answer."""


class InvalidInput(PolicyError, ValueError):
    """An argument is out of range; the message names it and the range."""
