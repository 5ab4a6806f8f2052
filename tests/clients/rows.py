"""What a client's checks report: one row a feature. Needs nothing but Python, for it runs in each
client's own environment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable


def works(feature: str, call: Callable[[], object]) -> None:
    """Report whether a call returns something true."""
    try:
        answer = call()
    except Exception as error:  # noqa: BLE001, the edge of one feature: the row says what failed
        _write(feature, f"FAILED: {type(error).__name__}: {error}")
    else:
        _write(feature, "ok" if answer else f"FAILED: the call gave {answer!r}")


def refused(feature: str, call: Callable[[], object], words: str) -> None:
    """Report whether a call is refused with an error that says these words."""
    try:
        call()
    except Exception as error:  # noqa: BLE001, clients wrap the engine's error in their own
        text = str(error)
        _write(feature, f"refused: {words}" if words in text else f"FAILED: {text}")
    else:
        _write(feature, f"FAILED: not refused with {words!r}")


def _write(feature: str, outcome: str) -> None:
    row = {"feature": feature, "outcome": " ".join(outcome.split())[:300]}
    sys.stdout.write(f"ROW {json.dumps(row)}\n")
    sys.stdout.flush()
