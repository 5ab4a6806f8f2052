"""What a plan changes, with the uncertainty of acceptance and of step times carried through.

Gains are ratios of goodput at one load level. A route's gain is what the whole engine gains by its
change, in units of what the route itself delivers, so that the cost to its batch mates counts and
a small route is not lost in the total. Where a route has the step to itself, or is the only one,
this is simply the new goodput over the old, less 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policy.goodput import NO_DATA_S, Batch, Rates, picked, rates, step_seconds, worth
from policy.planner import single_changes
from policy.statistics import Floats, Ints, sample_interval
from policy.types import Interval

_LONGEST_S = NO_DATA_S * 1e-12
_LEAST_SCORE = 1e-15


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stage:
    """One scene with draws from the posterior.

    Attributes:
        batch: the mix.
        scene: number of the scene in it.
        draws: [N, R, A] drawn tokens of a pass.
        noise: [N] standard normal, one draw of the error of step times.
        error_ratio: [R, A] relative error of the step time if a route has an arm.
    """

    batch: Batch
    scene: int
    draws: Floats
    noise: Floats
    error_ratio: Floats

    @property
    def index(self) -> Ints:
        """The scene as an index array; [1]."""
        return np.array([self.scene])

    def rates(self, choice: Ints) -> Rates:
        """Predict one plan, [R]."""
        return rates(self.batch, self.index, choice[None])

    def seconds(self, choice: Ints) -> float:
        """Return the step time of one plan."""
        return float(step_seconds(self.batch, self.index, choice[None])[0])

    def is_known(self, choice: Ints) -> bool:
        """True where the step time of a plan is known."""
        return self.seconds(choice) < _LONGEST_S

    def scores(self, plan: Ints, route: int) -> Floats:
        """Return the score of a plan with each arm for a route; -1 without a known time; [A]."""
        scores = single_changes(self.batch, self.index, plan[None])[0, route]
        return np.where(scores > _LEAST_SCORE, scores, -1.0)

    def tpot_s(self, choice: Ints, route: int) -> float:
        """Return a route's time per output token under a plan, in seconds."""
        tokens = self.batch.tokens[self.scene, route, choice[route]]
        return self.seconds(choice) * float(self.batch.rows[self.scene, route] / tokens)

    def gain(self, plan: Ints, base: Ints, route: int) -> Interval:
        """Return a plan's gain over another, in units of the route's goodput under the other."""
        return self._gain(plan, base, route)

    def gain_of_change(self, plan: Ints, base: Ints, route: int) -> Interval:
        """Return what a plan gains by one route's change from its arm in another plan.

        Without that change alone the step may be of a size never measured, although both plans
        are known: then all changes stand together, as a share of the other plan's goodput.
        """
        without = self.without_change(plan, base, route)
        return self._gain(plan, base, None) if without is None else self._gain(plan, without, route)

    def without_change(self, plan: Ints, base: Ints, route: int) -> Ints | None:
        """Return a plan with one route's arm as in another; None where its time is unknown."""
        without = plan.copy()
        without[route] = base[route]
        return without if self.is_known(without) else None

    def drawn_goodput(self, choice: Ints) -> Floats:
        """Return the goodput of a plan by draw; [N]."""
        return np.asarray(self._drawn(choice).sum(axis=1))

    def goodput(self, choice: Ints) -> Interval:
        """Return the goodput of a plan, the error of its step time included."""
        error = float(self.error_ratio[np.arange(len(choice)), choice].max())
        samples = self.drawn_goodput(choice) * np.exp(error * self.noise)
        return sample_interval(samples, float(self.rates(choice).goodput[0]))

    def joint_gain(self, plan: Ints, base: Ints) -> Interval:
        """Return what a plan gains over another, as a share of the other's goodput."""
        return self._gain(plan, base, None)

    def tokens_per_pass(self, route: int, arm: int) -> Interval:
        """Return the tokens of a pass of a route at an arm."""
        rows = self.batch.rows[self.scene, route]
        mean = float(self.batch.tokens[self.scene, route, arm] / rows)
        return sample_interval(self.draws[:, route, arm], mean)

    def _gain(self, plan: Ints, base: Ints, route: int | None) -> Interval:
        if np.array_equal(plan, base):
            return Interval(low=0.0, mean=0.0, high=0.0)
        new, old = self.rates(plan), self.rates(base)
        unit = float(old.goodput[0] if route is None else old.by_route[0, route])
        mean = (float(new.goodput[0]) - float(old.goodput[0])) / unit
        drawn, drawn_old = self._drawn(plan), self._drawn(base)
        drawn_unit = drawn_old.sum(axis=1) if route is None else drawn_old[:, route]
        faster = np.exp(self.ratio_error(plan, base) * self.noise)
        samples = (drawn.sum(axis=1) * faster - drawn_old.sum(axis=1)) / drawn_unit
        return sample_interval(samples, mean)

    def _drawn(self, choice: Ints) -> Floats:
        """Return each route's goodput by draw; [N, R]."""
        batch, seconds = self.batch, self.seconds(choice)
        kept = worth(picked(batch.limit_s, self.index, choice[None])[0], np.array(seconds))
        drawn = self.draws[:, np.arange(len(choice)), choice]
        return np.asarray(drawn * batch.rows[self.scene] * kept / seconds)

    def ratio_error(self, plan: Ints, base: Ints) -> float:
        """Return the relative error of the ratio of two step times; two plans that differ.

        Times of nearly equal shapes err together: the full error from a doubling of positions on.
        """
        moved = np.flatnonzero(plan != base)
        both = np.concatenate(
            [self.error_ratio[moved, plan[moved]], self.error_ratio[moved, base[moved]]]
        )
        sizes = [
            float(picked(self.batch.positions, self.index, choice[None]).sum())
            for choice in (plan, base)
        ]
        return float(both.max()) * min(1.0, abs(float(np.log2(sizes[0] / sizes[1]))))
