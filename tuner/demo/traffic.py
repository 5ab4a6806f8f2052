"""The traffic file: one prompt a line, with its route and its sampling settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from collectors.errors import InvalidRecord
from collectors.records import require_route_name
from tuner.demo.errors import InvalidTraffic

_KEYS = ("route", "messages", "sampling")
_RESERVED = ("model", "messages", "stream", "stream_options", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request as a product would send it.

    Attributes:
        route: class of traffic, sent as the header ``x-spectuner-route``.
        messages: OpenAI chat messages.
        sampling: body parameters in OpenAI's names, such as temperature and max_tokens.
    """

    route: str
    messages: tuple[Mapping[str, object], ...]
    sampling: Mapping[str, object]


def bundled_traffic() -> Path:
    """Return the traffic file that ships with the demo."""
    return Path(str(resources.files("tuner.demo") / "traffic.jsonl"))


def read_traffic(path: Path) -> tuple[Prompt, ...]:
    """Read a traffic file; empty lines are skipped.

    Raises:
        InvalidTraffic: the file cannot be read or is empty, or a line means nothing; names it.
    """
    lines = numbered_lines(path, "--traffic", "prompt")
    return tuple(_prompt(line, where) for where, line in lines)


def numbered_lines(path: Path, option: str, what: str) -> list[tuple[str, str]]:
    """Read a file of one JSON object a line; empty lines are skipped.

    Args:
        path: the file.
        option: that named it, for messages.
        what: one line holds, for messages.

    Returns:
        Where each line stands, and the line.

    Raises:
        InvalidTraffic: the file cannot be read or is empty.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidTraffic(f"{option} {path} cannot be read: {error}") from error
    numbered = [
        (f"{path} line {number}", line) for number, line in enumerate(lines, 1) if line.strip()
    ]
    if not numbered:
        raise InvalidTraffic(f"{option} {path} holds no {what}; write one JSON object a line")
    return numbered


def _prompt(line: str, where: str) -> Prompt:
    data = _object(line, where)
    unknown = sorted(set(data) - set(_KEYS))
    if unknown:
        raise InvalidTraffic(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(_KEYS)}")
    route, sampling = data.get("route"), data.get("sampling", {})
    if not isinstance(route, str):
        raise InvalidTraffic(f"{where}: route must be a string, got {route!r}")
    try:
        require_route_name(route)
    except InvalidRecord as error:
        raise InvalidTraffic(f"{where}: {error}") from None
    return Prompt(
        route=route,
        messages=_messages(data.get("messages"), where),
        sampling=_sampling(sampling, where),
    )


def _object(line: str, where: str) -> Mapping[str, object]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise InvalidTraffic(f"{where}: not JSON ({error})") from None
    if not isinstance(data, dict):
        raise InvalidTraffic(f"{where}: must be a JSON object with {', '.join(_KEYS)}")
    return data


def _messages(value: object, where: str) -> tuple[Mapping[str, object], ...]:
    if not isinstance(value, list) or not value:
        raise InvalidTraffic(f"{where}: messages must be a non-empty list")
    for message in value:
        if not isinstance(message, dict) or not {"role", "content"} <= set(message):
            raise InvalidTraffic(f"{where}: each message needs role and content, got {message!r}")
    return tuple(value)


def _sampling(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise InvalidTraffic(f"{where}: sampling must be an object, got {value!r}")
    for name in _RESERVED:
        if name in value:
            raise InvalidTraffic(f"{where}: sampling cannot set {name!r}; the player does")
    return value
