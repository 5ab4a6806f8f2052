"""What each route asks of the time per output token.

Limits are sized as an operator would: by what the busiest hour of an ordinary day takes without
speculation, with more room for routes that are read slowly.
"""

from __future__ import annotations

import numpy as np

from policy.simulate.profiles import Profile
from policy.simulate.worlds import ROUTES
from policy.statistics import Floats

BUSY_ROWS = 43
"""Rows at the peak of W2, bursts left out."""

ROOM = {"code": 1.25, "chat": 1.5, "extract": 2.0, "creative": 1.5}
"""Limit of each route over the plain step of a busy batch."""


def tpot_limits_s(profile: Profile) -> Floats:
    """Return the longest mean time per output token by route, in seconds; [R]."""
    busy_s = float(profile.step_table_s(BUSY_ROWS, 0.0)[BUSY_ROWS])
    return np.array([ROOM[name] * busy_s for name in ROUTES])
