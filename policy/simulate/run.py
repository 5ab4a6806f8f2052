"""One policy through one world, window by window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from policy.simulate.engine import Choice, Engine, switch_loss
from policy.simulate.peers.base import Policy
from policy.simulate.worlds import WINDOW_S
from policy.statistics import Floats, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """What a policy got.

    Attributes:
        name: of the policy.
        by_route: [W, R] expected tokens per second of what it chose, losses by switching included.
        moved: [W, R] 1 where a route's drafting changed from the window before.
        decision_s: [W] seconds that it took to choose.
        learning_s: [W] seconds that it took to take the counts in, apart from any request.
    """

    name: str
    by_route: Floats
    moved: Ints
    decision_s: Floats
    learning_s: Floats

    @cached_property
    def goodput(self) -> Floats:
        """Expected tokens per second of all routes; [W]."""
        return np.asarray(self.by_route.sum(axis=1))

    def kept(self, rows: Ints, limits_s: Floats) -> Floats:
        """Return the tokens per second of the routes that kept their limit; [W].

        Args:
            rows: [W, R] running sequences.
            limits_s: [R] longest mean time per output token, in seconds.
        """
        return np.asarray(np.where(self.tpot_s(rows) <= limits_s, self.by_route, 0.0).sum(axis=1))

    def tpot_s(self, rows: Ints) -> Floats:
        """Return the mean seconds per output token; 0 for routes without a sequence; [W, R]."""
        return np.divide(rows, self.by_route, out=np.zeros_like(self.by_route), where=rows > 0)


def run(engine: Engine, policy: Policy, seed: int, clock: Callable[[], float]) -> Trace:
    """Run a policy.

    The score is the expected goodput of what was chosen, so that luck of the draw does not count;
    what the policy is shown is drawn.

    Args:
        engine: a world on a profile.
        policy: fresh.
        seed: of what is drawn.
        clock: seconds, to time decisions by.
    """
    generator = np.random.default_rng((seed, 1))
    num_windows, num_routes = engine.world.num_windows, engine.world.num_routes
    deciding, learning = np.zeros(num_windows), np.zeros(num_windows)
    by_route = np.zeros((num_windows, num_routes))
    moved = np.zeros((num_windows, num_routes), dtype=np.intp)
    before: Choice | None = None
    for window in range(num_windows):
        turn = engine.turn(window)
        started = clock()
        asked = policy.choose(turn)
        deciding[window] = clock() - started
        choice = engine.allotted(turn, asked)
        loss = switch_loss(engine.profile, turn, choice, before)
        by_route[window] = (1 - loss) * engine.route_goodputs(turn, choice)
        moved[window] = 0 if before is None else choice.moved(before)
        counts = engine.counts(turn, choice, generator, loss * WINDOW_S)
        started = clock()
        policy.observe(counts)
        learning[window] = clock() - started
        before = choice
    return Trace(
        name=policy.name,
        by_route=by_route,
        moved=moved,
        decision_s=deciding,
        learning_s=learning,
    )
