"""Blanking out what must not reach a disk: addresses, long numbers, keys."""

from __future__ import annotations

import re
from collections.abc import Mapping

_KEY_MARK = "[key]"
_PATTERNS = (
    (re.compile(r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL), _KEY_MARK),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"), _KEY_MARK),
    (
        re.compile(r"\b(?:sk|pk|rk|gh[oprsu]|github_pat|glpat|xox[a-z]|hf)[-_][A-Za-z0-9_-]{12,}"),
        _KEY_MARK,
    ),
    (re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)"), r"\1" + _KEY_MARK),
    (re.compile(r"\b(?:AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}"), _KEY_MARK),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{12,}"), _KEY_MARK),
    (
        re.compile(
            r"(?i)\b((?:api[_-]?key|token|secret|passw(?:or)?d|pwd)[\"']?\s*[:=]\s*[\"']?)"
            r"[^\s\"',;]{6,}"
        ),
        r"\1" + _KEY_MARK,
    ),
    (re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"), "[email]"),
    (re.compile(r"\b(?=[A-Za-z0-9+/_-]*\d)[A-Fa-f0-9]{32,}\b"), _KEY_MARK),
    (re.compile(r"(?<![\w.-])(?!\d{4}-\d\d-\d\d\b)\+?\d(?:[ ()/-]{0,2}\d){6,}(?!\w)"), "[number]"),
)
_NUL = "\x00"


def redact(text: str) -> tuple[str, int]:
    """Return a text without e-mail addresses, numbers of 7 or more digits and keys.

    Characters that no database holds (NUL, half of a surrogate pair) go as well.

    Returns:
        The text, and how many places were blanked out.
    """
    total = 0
    for pattern, mark in _PATTERNS:
        text, count = pattern.subn(mark, text)
        total += count
    storable = text.encode("utf-8", "replace").decode().replace(_NUL, "\N{REPLACEMENT CHARACTER}")
    return storable, total + int(storable != text)


def redact_values(values: Mapping[str, object]) -> tuple[dict[str, object], int]:
    """Redact every text in sampling parameters, such as stop strings."""
    redacted: dict[str, object] = {}
    total = 0
    for name, value in values.items():
        redacted[name], count = _redact_value(value)
        total += count
    return redacted, total


def _redact_value(value: object) -> tuple[object, int]:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return redact_values(value)
    if isinstance(value, list | tuple):
        parts = [_redact_value(part) for part in value]
        return [part for part, _ in parts], sum(count for _, count in parts)
    return value, 0
