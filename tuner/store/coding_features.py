"""Checks of acceptance features to JSON values and back."""

from __future__ import annotations

from collectors.errors import InvalidRecord
from collectors.records.parsing import JsonObject, as_object, integer, items, number
from policy.types import FeatureCheck, Interval, Reliability


def feature_check_to_dict(check: FeatureCheck) -> dict[str, object]:
    """Write a FeatureCheck."""
    gain = check.gain
    return {
        "why_not": check.why_not,
        "requests": check.requests,
        "windows": check.windows,
        "gain": None if gain is None else [gain.low, gain.mean, gain.high],
        "reliability": [[row.predicted, row.counted, row.attempts] for row in check.reliability],
        "odds_by_feature": dict(check.odds_by_feature),
        "shift_by_route": dict(check.shift_by_route),
    }


def feature_check_from_dict(data: JsonObject) -> FeatureCheck:
    """Read a FeatureCheck."""
    why_not, gain = data.get("why_not"), data.get("gain")
    return FeatureCheck(
        why_not=None if why_not is None else str(why_not),
        requests=integer(data, "requests"),
        windows=integer(data, "windows"),
        gain=None if gain is None else Interval(**_named(gain, ("low", "mean", "high"))),
        reliability=tuple(_reliability(row) for row in items(data, "reliability")),
        odds_by_feature=_numbers(data, "odds_by_feature"),
        shift_by_route=_numbers(data, "shift_by_route"),
    )


def _reliability(row: object) -> Reliability:
    named = _named(row, ("predicted", "counted", "attempts"))
    return Reliability(
        predicted=named["predicted"], counted=named["counted"], attempts=int(named["attempts"])
    )


def _named(row: object, names: tuple[str, ...]) -> dict[str, float]:
    if not isinstance(row, list | tuple) or len(row) != len(names):
        raise InvalidRecord(f"a row must be [{', '.join(names)}], got {row!r}")
    named = dict(zip(names, row, strict=True))
    return {name: number(named, name) for name in names}


def _numbers(data: JsonObject, key: str) -> dict[str, float]:
    named = as_object(data.get(key, {}), key)
    return {name: number(named, name) for name in named}
