"""Errors of the demo. The message names the value and the fix."""

from __future__ import annotations

from tuner.errors import BadRequest, TunerError


class InvalidTraffic(BadRequest):
    """A line of the traffic file cannot be played."""


class PortInUse(BadRequest):
    """Another process listens on a port the demo needs."""


class ChildFailed(TunerError):
    """The engine or the service ended or never answered; the message says where its log is."""


class InvalidDataDir(BadRequest):
    """The folder for the demo's facts cannot be used."""
