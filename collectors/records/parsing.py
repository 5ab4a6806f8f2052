"""Reading and writing the wire form: checked access to parsed JSON, canonical JSON, digests."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias, TypeVar

from collectors.errors import InvalidRecord

JsonObject: TypeAlias = Mapping[str, object]
"""A parsed JSON object, at the edge only."""

E = TypeVar("E", bound=StrEnum)


def canonical_json(value: object) -> str:
    """Serialise with sorted keys and no spaces, so that equal values have equal digests."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(value: object) -> str:
    """Return the sha256 hex digest of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def require(condition: bool, message: str) -> None:
    """Raise InvalidRecord with the message unless the condition holds."""
    if not condition:
        raise InvalidRecord(message)


def integer(data: JsonObject, key: str, default: int | None = None) -> int:
    """Read an integer from parsed JSON; booleans and fractions are refused."""
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRecord(f"{key} must be an integer, got {value!r}")
    return value


def number(data: JsonObject, key: str, default: float | None = None) -> float:
    """Read a finite number from parsed JSON."""
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRecord(f"{key} must be a finite number, got {value!r}")
    return float(value)


def text(data: JsonObject, key: str, default: str | None = None) -> str:
    """Read a string from parsed JSON."""
    value = data.get(key, default)
    if not isinstance(value, str):
        raise InvalidRecord(f"{key} must be a string, got {value!r}")
    return value


def truth(data: JsonObject, key: str, default: bool = False) -> bool:
    """Read a boolean from parsed JSON."""
    value = data.get(key, default)
    if not isinstance(value, bool):
        raise InvalidRecord(f"{key} must be true or false, got {value!r}")
    return value


def items(data: JsonObject, key: str) -> Sequence[object]:
    """Read a list from parsed JSON; an absent key is an empty list."""
    value = data.get(key, [])
    if not isinstance(value, list | tuple):
        raise InvalidRecord(f"{key} must be a list, got {value!r}")
    return value


def as_object(value: object, what: str) -> JsonObject:
    """Check that a parsed JSON value is an object."""
    if not isinstance(value, Mapping):
        raise InvalidRecord(f"{what} must be a JSON object, got {value!r}")
    return value


def as_time(seconds: float) -> datetime:
    """Turn Unix seconds into an aware UTC time."""
    return datetime.fromtimestamp(seconds, UTC)


def member(kind: type[E], value: str, what: str) -> E:
    """Look a value up in an enum, naming the legal ones when it is not there."""
    try:
        return kind(value)
    except ValueError:
        legal = ", ".join(kind)
        raise InvalidRecord(f"unknown {what} {value!r}; use one of: {legal}") from None
