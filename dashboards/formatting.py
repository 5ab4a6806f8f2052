"""Numbers as people read them: units shown, intervals shown, "no data" apart from 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from collectors.records import LATENCY_BOUNDS_S
from policy.types import Evidence, Interval

NO_DATA = "no data"
_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86_400
_EVIDENCE_NOTES = {
    Evidence.LIVE: "counted on live traffic",
    Evidence.REPLAY: "counted on shadow replays of captured requests",
    Evidence.COUNTERFACTUAL: "computed: what the method would have got accepted",
}


def count(value: int | None) -> str:
    """Return a whole number with grouped digits."""
    return NO_DATA if value is None else f"{value:,}".replace(",", "\u202f")


def figure(value: float | None, digits: int = 2) -> str:
    """Return a number with fixed decimals."""
    return NO_DATA if _is_missing(value) else f"{value:,.{digits}f}".replace(",", "\u202f")


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share of 1 in percent."""
    return NO_DATA if share is None or _is_missing(share) else f"{100 * share:.{digits}f}\u00a0%"


def signed_percent(share: float | None) -> str:
    """Return a relative change in percent, with its sign."""
    if share is None or _is_missing(share):
        return NO_DATA
    return f"{_signed(share)}\u00a0%"


def gain_range(gain: Interval | None) -> str:
    """Return the ends of a relative change's interval, in percent."""
    if gain is None or _is_missing(gain.low) or _is_missing(gain.high):
        return NO_DATA
    return f"{_signed(gain.low)} to {_signed(gain.high)}\u00a0%"


def factor(value: float | None) -> str:
    """Return a ratio, such as ``1.42x``."""
    return NO_DATA if _is_missing(value) else f"{value:.2f}\u00d7"


def spread(estimate: Interval | None, digits: int = 2) -> str:
    """Return the ends of an interval."""
    if estimate is None or _is_missing(estimate.low) or _is_missing(estimate.high):
        return NO_DATA
    return f"{estimate.low:.{digits}f} to {estimate.high:.{digits}f}"


def share_range(share: Interval | None) -> str:
    """Return the ends of a share's interval in percent, finer where they are close."""
    if share is None or _is_missing(share.low) or _is_missing(share.high):
        return NO_DATA
    digits = 0 if share.high - share.low >= 0.02 else 1
    return f"{100 * share.low:.{digits}f} to {100 * share.high:.{digits}f}\u00a0%"


def duration(seconds: float | None) -> str:
    """Return a time in the unit that fits; ``inf`` is above every latency bucket."""
    if seconds is None or math.isnan(seconds):
        return NO_DATA
    if math.isinf(seconds):
        return f">\u00a0{LATENCY_BOUNDS_S[-1]:.0f}\u00a0s"
    if abs(seconds) < 0.9995:
        return _milliseconds(seconds * 1000)
    if seconds < 99.95:
        return f"{seconds:.{2 if seconds < 9.995 else 1}f}\u00a0s"
    return coarse_duration(seconds)


def quantiles(median: float | None, tail: float | None) -> str:
    """Return two quantiles of one latency; a unit that both share is written once."""
    first, second = duration(median), duration(tail)
    if first == second == NO_DATA:
        return NO_DATA
    number, _, unit = first.partition("\u00a0")
    shares_unit = unit and second.endswith(f"\u00a0{unit}") and second.count("\u00a0") == 1
    return f"{number if shares_unit else first} / {second}"


def coarse_duration(seconds: float) -> str:
    """Return a time in whole units, two at most."""
    whole = max(0, round(seconds))
    for size, unit, smaller, small_unit in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", _MINUTE_S, "min"),
        (_MINUTE_S, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}\u00a0{unit}" + (f" {rest}\u00a0{small_unit}" if rest else "")
    return f"{whole}\u00a0s"


def moment(at: datetime | None) -> str:
    """Return a time of day in UTC, with its date."""
    return NO_DATA if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def minute(at_s: float) -> str:
    """Return a Unix time in UTC, to the minute."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M}"


def clock(at: datetime | None) -> str:
    """Return a time of day in UTC."""
    return NO_DATA if at is None else f"{at:%H:%M:%S}"


def age(at: datetime | None, now: datetime) -> str:
    """Return how long ago something was."""
    if at is None:
        return "never"
    passed = now - at
    if passed < timedelta(seconds=1):
        return "just now"
    seconds = passed.total_seconds()
    if _MINUTE_S <= seconds < _HOUR_S:
        return f"{seconds // _MINUTE_S:.0f}\u00a0min ago"
    return f"{coarse_duration(seconds)} ago"


def evidence_note(evidence: Evidence) -> str:
    """Return one sentence on where an observation comes from."""
    return _EVIDENCE_NOTES[evidence]


def state_words(state: str) -> str:
    """Return a state or outcome as words, such as ``rolled back``."""
    return state.replace("_", " ")


def short_digest(digest: str | None) -> str:
    """Return the front of a digest."""
    return digest[:12] if digest else NO_DATA


FILTERS: Mapping[str, Callable[..., str]] = {
    "count": count,
    "figure": figure,
    "percent": percent,
    "signed_percent": signed_percent,
    "gain_range": gain_range,
    "factor": factor,
    "spread": spread,
    "share_range": share_range,
    "duration": duration,
    "quantiles": quantiles,
    "moment": moment,
    "minute": minute,
    "clock": clock,
    "age": age,
    "evidence_note": evidence_note,
    "state_words": state_words,
    "short_digest": short_digest,
}


def _is_missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def _signed(share: float) -> str:
    shown = f"{100 * share:+.1f}"
    return "0.0" if shown in ("+0.0", "-0.0") else shown.replace("-", "\u2212")


def _milliseconds(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}\u00a0ms"
