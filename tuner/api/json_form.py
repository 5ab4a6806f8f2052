"""Views as JSON values.

Keys are the field names of ``dashboards.views``. Times are ISO 8601 in UTC, durations seconds,
shares 0 to 1, null where nothing was counted; a Setting is its wire form plus ``label``, a load
level its label, an interval ``{"low", "mean", "high"}`` of 90 %. A latency quantile ``X_p95_s`` has
a companion ``X_p95_is_above``: true where the value is only the highest bucket's bound and the
quantile lies above it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from collectors.records import LATENCY_BOUNDS_S, LoadLevel, Setting

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
_QUANTILE = re.compile(r".*_p\d\d_s")


def json_form(value: object) -> Json:
    """Return a view, or anything a view holds, as a JSON value.

    Raises:
        TypeError: a view holds something that has no JSON form.
    """
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, LoadLevel):
        return value.label
    if isinstance(value, Setting):
        return {**_mapping(value.to_dict()), "label": value.label}
    return _container(value)


def _container(value: object) -> Json:
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, list | tuple):
        return [json_form(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _record({field.name: getattr(value, field.name) for field in fields(value)})
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _record(named: Mapping[str, object]) -> dict[str, Json]:
    plain: dict[str, Json] = {}
    for name, value in named.items():
        is_above = _QUANTILE.fullmatch(name) is not None and value == math.inf
        plain[name] = LATENCY_BOUNDS_S[-1] if is_above else json_form(value)
        if _QUANTILE.fullmatch(name):
            plain[f"{name[:-2]}_is_above"] = is_above
    return plain


def _mapping(named: Mapping[str, object]) -> dict[str, Json]:
    return {str(name): json_form(value) for name, value in named.items()}
