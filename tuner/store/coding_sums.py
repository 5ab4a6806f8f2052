"""Sums of steps to JSON values and back, for the body of a window."""

from __future__ import annotations

from collectors.records import load_level_named
from collectors.records.parsing import JsonObject, integer, number, text
from policy.decode_sum import DecodeSum
from policy.pairing import StepPairing


def decode_sum_to_dict(counted: DecodeSum) -> dict[str, object]:
    """Write a DecodeSum."""
    plain = {name: getattr(counted, name) for name in counted.__slots__}
    return {**plain, "load": counted.load.label}


def decode_sum_from_dict(data: JsonObject) -> DecodeSum:
    """Read a DecodeSum."""
    route = data.get("route")
    return DecodeSum(
        load=load_level_named(text(data, "load")),
        route=None if route is None else str(route),
        steps=integer(data, "steps"),
        tokens=integer(data, "tokens"),
        busy_s=number(data, "busy_s"),
    )


def pairing_to_dict(counted: StepPairing) -> dict[str, object]:
    """Write a StepPairing."""
    plain = {name: getattr(counted, name) for name in counted.__slots__}
    return {**plain, "load": counted.load.label}


def pairing_from_dict(data: JsonObject) -> StepPairing:
    """Read a StepPairing."""
    return StepPairing(
        load=load_level_named(text(data, "load")),
        pairs=integer(data, "pairs"),
        sum_log_ratio=number(data, "sum_log_ratio"),
        sum_square_log_ratio=number(data, "sum_square_log_ratio"),
        drafting_tokens=integer(data, "drafting_tokens"),
        drafting_steps=integer(data, "drafting_steps"),
    )
