"""How much evidence stands behind a recommendation, in counts that an operator can weigh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policy.types import Evidence, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceAmount:
    """Counts behind one route's recommendation.

    Attributes:
        passes: target passes of the route in live and replayed traffic, at any Setting.
        windows: windows with live passes of the route.
        requests: its finished requests.
        replay_pairs: captured requests that ran on two Settings, valid pairs only.
    """

    passes: int = 0
    windows: int = 0
    requests: int = 0
    replay_pairs: int = 0


def amount_of(
    route: str, windows: Sequence[Window], *, replay_pairs: int = 0, since_s: float = 0.0
) -> EvidenceAmount:
    """Count what windows hold of a route.

    Args:
        route: route name.
        windows: in any order.
        replay_pairs: valid pairs of the route's replays.
        since_s: windows that start earlier are left out, Unix seconds.
    """
    counted = [one for one in windows if one.start_s >= since_s and not one.is_calibration]
    own = [[seen for seen in window.observations if seen.route == route] for window in counted]
    return EvidenceAmount(
        passes=sum(
            seen.passes
            for part in own
            for seen in part
            if seen.evidence is not Evidence.COUNTERFACTUAL
        ),
        windows=sum(any(seen.evidence is Evidence.LIVE for seen in part) for part in own),
        requests=sum(
            one.requests for window in counted for one in window.requests if one.route == route
        ),
        replay_pairs=replay_pairs,
    )
