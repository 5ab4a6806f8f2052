"""What the control loop may do on one route: bounds that an operator approves once.

Pure records and checks. The loop never touches a route without an envelope, and speculation off is
always within one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from collectors.records import LoadLevel, Method, Setting
from policy.errors import InvalidInput

MAX_EXPLORING_SHARE = 0.1
"""Share of a route's live tokens above which no envelope lets the loop explore."""

MAX_K = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Bounds of the control loop on one route.

    Attributes:
        route: route name.
        methods: methods that may be used; off always may.
        max_k: longest draft.
        exploring_share: share of the route's live tokens to explore with, 0 to 0.1.
        loads: load levels at which the loop decides; empty means all.
        keeps_limits: whether the route's TPOT and TTFT limits must hold.
        expires_s: Unix seconds from which the envelope is void.
    """

    route: str
    methods: frozenset[Method]
    max_k: int
    exploring_share: float = 0.0
    loads: tuple[LoadLevel, ...] = ()
    keeps_limits: bool = True
    expires_s: float

    def __post_init__(self) -> None:
        """Refuse bounds that mean nothing."""
        if not self.route:
            raise InvalidInput("an envelope needs the name of a route")
        if not self.methods - {Method.OFF}:
            raise InvalidInput(
                f"the envelope of {self.route} allows no method but off; name one, or withdraw it"
            )
        if not math.isfinite(self.expires_s):
            raise InvalidInput(f"an envelope needs a moment of expiry, got {self.expires_s}")
        if not 1 <= self.max_k <= MAX_K:
            raise InvalidInput(f"max_k must be 1 to {MAX_K}, got {self.max_k}")
        if not 0 <= self.exploring_share <= MAX_EXPLORING_SHARE:
            raise InvalidInput(
                f"exploring_share must be 0 to {MAX_EXPLORING_SHARE}, got {self.exploring_share}"
            )

    def is_expired(self, now_s: float) -> bool:
        """True from the moment on from which the envelope is void."""
        return now_s >= self.expires_s

    def covers(self, load: LoadLevel) -> bool:
        """True where the loop decides at a load level."""
        return not self.loads or load in self.loads

    def refusal_reason(self, setting: Setting) -> str | None:
        """Say why a Setting is outside; None where it is inside."""
        if setting.method is Method.OFF:
            return None
        if not setting.rule.is_lossless:
            return f"{setting.label} changes outputs"
        if setting.method not in self.methods:
            return f"{setting.label}: {setting.method.value} is not among the methods allowed"
        if setting.k > self.max_k:
            return f"{setting.label} drafts more than {self.max_k} tokens"
        return None

    def within(self, arms: Iterable[Setting]) -> tuple[Setting, ...]:
        """Return the arms inside."""
        return tuple(arm for arm in arms if self.refusal_reason(arm) is None)
