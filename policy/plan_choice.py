"""Which plan to run: the best one found, how far to go to it, what is worth a try, what is safe.

The mean decides; draws from the posterior say how far it may be wrong, and where trying something
else may turn out better than what looks best. The control loop and ``recommend`` choose alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policy.goodput import NO_DATA_S, Batch, step_seconds
from policy.interval import Interval
from policy.options import ControlOptions
from policy.plan_evaluation import PlanEvaluation
from policy.planner import best_plan
from policy.scenes import StepBounds
from policy.statistics import TAIL, Bools, Floats, Ints, sample_interval
from policy.switching import Charge

_KNOWN_S = NO_DATA_S * 1e-12
_KNOWN_RATIO = 0.1
"""Standard error of the tokens of a pass, over their mean, up to which they count as known."""


class PlanChoice:
    """The choice among the plans of one evaluated batch."""

    def __init__(
        self,
        evaluation: PlanEvaluation,
        options: ControlOptions,
        bounds: StepBounds | None = None,
        charge: Charge | None = None,
    ) -> None:
        self._evaluation = evaluation
        self._options = options
        self._bounds = bounds
        self._charge = charge

    def improved(self, current: Ints, frozen: set[int]) -> Ints:
        """Return the best plan, or the current one where that gains too little."""
        batch = self._evaluation.mean
        allowed = batch.allowed.copy()
        for route in frozen:
            allowed[0, route] = False
            allowed[0, route, current[route]] = True
        batch = replace(batch, allowed=allowed)
        plan = best_plan(batch, current[None])[0]
        if self._evaluation.score(plan, batch) < (
            1 + self._options.min_gain
        ) * self._evaluation.score(current, batch):
            return current
        return self._pruned(batch, plan, current)

    def moved(self, running: Ints, target: Ints) -> Ints:
        """Return how far to go from what runs to a better plan: moves must earn what they lose.

        A move to what is not known well is free: running it tells what it is worth.

        Args:
            running: [R] what runs now.
            target: [R] the plan to go to.
        """
        if self._charge is None or np.array_equal(running, target):
            return target
        route = np.arange(len(target))
        drawn = self._evaluation.draws[:, route, target]
        is_known = drawn.std(axis=0) <= _KNOWN_RATIO * drawn.mean(axis=0)
        batch = self._charged(target, is_known)
        allowed = np.zeros_like(batch.allowed)
        allowed[0, route, running] = batch.allowed[0, route, running]
        allowed[0, route, target] = True
        plan = best_plan(replace(batch, allowed=allowed), target[None])[0]
        return plan if self.is_safe(plan) else target

    def _charged(self, plan: Ints, is_charged: Bools) -> Batch:
        """Return the batch in which every row that leaves what runs adds what that loses."""
        assert self._charge is not None
        lost_s = (
            self._charge.ratio
            * float(self._evaluation.seconds(plan[None])[0])
            * is_charged[:, None]
        )
        return replace(self._evaluation.mean, own_s=self._evaluation.mean.own_s + lost_s[None])

    def explored(self, best: Ints, is_open: Bools, price: float) -> Ints:
        """Return the best plan with some routes trying what may turn out better.

        An arm is worth a window where knowing whether it is better, for as long as it would be
        used, is worth more than what it is expected to lose. Not all rows try at once.

        Args:
            best: [R] the plan to depart from.
            is_open: [R] routes that may try.
            price: windows of a row's tokens that a row must bring that tries for a window.
        """
        worth = np.where(is_open[:, None], self._worth_trying(best), -np.inf)
        share = self._evaluation.mean.rows[0] / self._evaluation.mean.rows[0].sum()
        least = price * share * self._evaluation.score(best)
        arm, value = np.argmax(worth, axis=1), worth.max(axis=1) - least
        order = np.argsort(-value)
        taken = np.cumsum(share[order]) <= self._options.most_exploring
        taken[:1] = True
        tries = order[taken & (value[order] > 0)]
        plan = best.copy()
        plan[tries] = arm[tries]
        return plan

    def _worth_trying(self, best: Ints) -> Floats:
        """Return what trying each arm is worth, in tokens per second of a window; [R, A].

        Minus infinity for arms that teach nothing, cost an unknown time, or may fall too low.
        """
        num_routes, num_arms = self._evaluation.mean.tokens.shape[1:]
        route, rows = np.arange(num_routes), self._evaluation.mean.rows[0]
        plans = np.tile(best, (num_routes, num_arms, 1))
        plans[route[:, None], np.arange(num_arms), route[:, None]] = np.arange(num_arms)
        flat, shape = plans.reshape(-1, num_routes), (num_routes, num_arms)
        seconds = self._evaluation.seconds(flat).reshape(shape)
        error = self._evaluation.errors_over_off(flat).reshape(shape)
        own = self._evaluation.draws[:, route, best] * rows
        base = own.sum(axis=1)[:, None, None]
        slow = np.exp(error * self._evaluation.noise[:, None, None])
        goodput = (base - own[:, :, None] + rows[:, None] * self._evaluation.draws) / (
            seconds * slow
        )
        gain = goodput - base / float(self._evaluation.seconds(best[None])[0])
        lasting = self._evaluation.belief.lasting_windows(self._options.trial_windows)
        mean = gain.mean(axis=0)
        learned = np.maximum(gain, 0.0).mean(axis=0) - np.maximum(mean, 0.0)
        worth = (lasting - 1) * learned - np.maximum(-mean, 0.0)
        low = np.quantile(goodput, TAIL, axis=0)
        least = self._options.least_exploring_over_off * self._off_goodput()
        teaches = self._evaluation.mean.allowed[0] & ~self._evaluation.belief.is_known(best)
        return np.where(teaches & (seconds < _KNOWN_S) & (low >= least), worth, -np.inf)

    def _pruned(self, batch: Batch, plan: Ints, current: Ints) -> Ints:
        """Take back the changes without which hardly anything is lost."""
        for route in np.flatnonzero(plan != current):
            without = plan.copy()
            without[route] = current[route]
            least = (1 - self._options.min_gain / len(plan)) * self._evaluation.score(plan, batch)
            if self._evaluation.score(without, batch) >= least:
                plan = without
        return plan

    def goodput(self, plan: Ints) -> Interval:
        """Predict the tokens per second of the next window, less what changes lose in it."""
        quick = np.exp(-self._evaluation.next_paces)
        samples = quick * self._samples(plan, is_against_off=False)
        kept = self._kept(plan)
        mean = float(np.exp(np.median(np.log(quick)))) * self._evaluation.score(plan)
        return sample_interval(kept * samples, kept * mean)

    def is_safe(self, plan: Ints) -> bool:
        """True where even the low end keeps to the bound against off, however long it may take."""
        return self.over_off(plan) >= self._options.least_over_off * self._stretch(plan)

    def is_worth_risking(self, plan: Ints) -> bool:
        """True where a plan keeps to the bound if it takes as long as expected."""
        return self.over_off(plan) >= self._options.least_over_off

    def least_goodput(self, plan: Ints) -> float:
        """Return what off as expected asks of a plan, less what going to it loses.

        In tokens per second of the next window.
        """
        off = self._evaluation.score(self._evaluation.off)
        return self._options.least_over_off * off * self._kept(plan)

    def _kept(self, plan: Ints) -> float:
        """Return the share of the next window that changes to a plan leave."""
        if self._charge is None:
            return 1.0
        return max(0.0, 1 - float(self._charge.lost_windows[np.arange(len(plan)), plan].sum()))

    def over_off(self, plan: Ints) -> float:
        """Return the low end of a plan's goodput over the most that off may give."""
        if np.array_equal(plan, self._evaluation.off):
            return 1.0
        low = float(np.quantile(self._samples(plan, is_against_off=True), TAIL))
        return low / self._off_goodput()

    def _off_goodput(self) -> float:
        expected = self._evaluation.score(self._evaluation.off)
        if self._bounds is None:
            return expected
        return expected * float(self._evaluation.mean.step_s[0, 0]) / self._bounds.least_off_s

    def safest(self, plans: Sequence[Ints]) -> Ints:
        """Return the first safe plan; off if there is none."""
        return next((plan for plan in plans if self.is_safe(plan)), self._evaluation.off)

    def _stretch(self, plan: Ints) -> float:
        """Return by how much longer than expected a plan may take; 1 for off."""
        if self._bounds is None or np.array_equal(plan, self._evaluation.off):
            return 1.0
        slowest = replace(self._evaluation.mean, step_s=self._bounds.most_s[None])
        most_s, expected_s = (
            step_seconds(batch, np.array([0]), plan[None])[0]
            for batch in (slowest, self._evaluation.mean)
        )
        return float(most_s / expected_s)

    def _samples(self, plan: Ints, *, is_against_off: bool) -> Floats:
        """Draw a plan's goodput; [N]."""
        evaluation = self._evaluation
        error = (
            evaluation.errors_over_off(plan[None])
            if is_against_off
            else np.hypot(evaluation.step_errors(plan[None]), evaluation.pace_errors(plan[None]))
        )
        drawn = (
            self._evaluation.next_draws[:, np.arange(len(plan)), plan]
            @ self._evaluation.mean.rows[0]
        )
        return np.asarray(
            drawn * np.exp(error * self._evaluation.noise) / self._evaluation.seconds(plan[None])
        )
