"""Errors of the drafter training; the message names the value and the fix."""

from __future__ import annotations

from tuner.engine.errors import StartupError


class TrainingError(StartupError):
    """Training the draft model cannot start or go on with what it was given."""


class MaterialError(TrainingError):
    """The text that training prompts are made of is missing or malformed."""


class ShardError(TrainingError):
    """A file of generated answers cannot be read, or belongs to another target."""


class DraftFormatError(TrainingError):
    """A draft model file lacks a tensor or has one of the wrong shape."""
