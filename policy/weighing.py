"""One batch weighed: what plans are expected to give, what they may give, what is worth a try.

The mean decides; draws from the posterior say how far it may be wrong, and where trying something
else may turn out better than what looks best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from collectors.records import OFF, LoadLevel
from policy.adaptive import AtLoad, Kind, kind_of
from policy.goodput import NO_DATA_S, Batch, picked, scores_of, step_seconds
from policy.knowledge import Knowledge
from policy.options import ControlOptions
from policy.planner import best_plan
from policy.regimes import Regimes
from policy.scenes import StepBounds
from policy.statistics import TAIL, Bools, Floats, Ints, sample_interval
from policy.switching import Charge
from policy.types import Interval

OFF_ARM = 0
_KNOWN_S = NO_DATA_S * 1e-12
_KNOWN_RATIO = 0.1
"""Standard error of the tokens of a pass, over their mean, up to which they count as known."""

_TAIL_Z = float(special.ndtri(1 - TAIL))


class Weighing:
    """One scene weighed by what is believed, and by one draw of what may be."""

    def __init__(
        self,
        batch: Batch,
        belief: Belief,
        generator: np.random.Generator,
        options: ControlOptions,
        bounds: StepBounds | None = None,
        charge: Charge | None = None,
    ) -> None:
        self._options = options
        self._bounds = bounds
        self._charge = charge
        self._belief = belief
        self._draws = belief.draws(generator, options.num_draws, is_next=True)
        self._now = belief.draws(generator, options.num_draws, is_next=False)
        self.mean = replace(
            batch,
            tokens=batch.rows[:, :, None] * belief.mean_tokens()[None],
            positions=belief.mean_positions(),
        )
        self._noise = generator.standard_normal(options.num_draws)
        self._off = np.full(batch.rows.shape[1], OFF_ARM, dtype=np.intp)

    def improved(self, current: Ints, frozen: set[int]) -> Ints:
        """Return the best plan, or the current one where that gains too little."""
        batch = self.mean
        allowed = batch.allowed.copy()
        for route in frozen:
            allowed[0, route] = False
            allowed[0, route, current[route]] = True
        batch = replace(batch, allowed=allowed)
        plan = best_plan(batch, current[None])[0]
        if self._score(batch, plan) < (1 + self._options.min_gain) * self._score(batch, current):
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
        drawn = self._now[:, route, target]
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
        lost_s = self._charge.ratio * float(self._seconds(plan[None])[0]) * is_charged[:, None]
        return replace(self.mean, own_s=self.mean.own_s + lost_s[None])

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
        share = self.mean.rows[0] / self.mean.rows[0].sum()
        least = price * share * self._score(self.mean, best)
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
        num_routes, num_arms = self.mean.tokens.shape[1:]
        route, rows = np.arange(num_routes), self.mean.rows[0]
        plans = np.tile(best, (num_routes, num_arms, 1))
        plans[route[:, None], np.arange(num_arms), route[:, None]] = np.arange(num_arms)
        flat, shape = plans.reshape(-1, num_routes), (num_routes, num_arms)
        seconds = self._seconds(flat).reshape(shape)
        error = self._step_errors(flat, is_against_off=True).reshape(shape)
        own = self._now[:, route, best] * rows
        base = own.sum(axis=1)[:, None, None]
        slow = np.exp(error * self._noise[:, None, None])
        goodput = (base - own[:, :, None] + rows[:, None] * self._now) / (seconds * slow)
        gain = goodput - base / float(self._seconds(best[None])[0])
        lasting = self._belief.lasting_windows(self._options.trial_windows)
        mean = gain.mean(axis=0)
        learned = np.maximum(gain, 0.0).mean(axis=0) - np.maximum(mean, 0.0)
        worth = (lasting - 1) * learned - np.maximum(-mean, 0.0)
        low = np.quantile(goodput, TAIL, axis=0)
        least = self._options.least_exploring_over_off * self._off_goodput()
        teaches = self.mean.allowed[0] & ~self._belief.is_known(best)
        return np.where(teaches & (seconds < _KNOWN_S) & (low >= least), worth, -np.inf)

    def _seconds(self, plans: Ints) -> Floats:
        """Return the step time of plans [N, R]; [N]."""
        return step_seconds(self.mean, np.zeros(len(plans), dtype=np.intp), plans)

    def _step_errors(self, plans: Ints, *, is_against_off: bool) -> Floats:
        """Return the relative error of the step time of plans [N, R]; [N].

        Against off, times of nearly equal steps err together: the full error from a doubling of
        positions on.
        """
        scene = np.zeros(len(plans), dtype=np.intp)
        rows = float(self.mean.rows[0].sum())
        positions = picked(self.mean.positions, scene, plans).sum(axis=1)
        sizes, place = np.unique(np.rint(positions), return_inverse=True)
        error = np.array([self._belief.step_error_ratio(rows, size) for size in sizes])[place]
        growth = np.log2(np.maximum(positions / rows, 1.0)) if is_against_off else 1.0
        return np.asarray(error * np.minimum(growth, np.ones(len(plans))))

    def _pruned(self, batch: Batch, plan: Ints, current: Ints) -> Ints:
        """Take back the changes without which hardly anything is lost."""
        for route in np.flatnonzero(plan != current):
            without = plan.copy()
            without[route] = current[route]
            least = (1 - self._options.min_gain / len(plan)) * self._score(batch, plan)
            if self._score(batch, without) >= least:
                plan = without
        return plan

    def goodput(self, plan: Ints) -> Interval:
        """Predict the tokens per second of the next window, less what changes lose in it."""
        samples = self._samples(plan, is_against_off=False)
        kept = self._kept(plan)
        return sample_interval(kept * samples, kept * self._score(self.mean, plan))

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
        off = self._score(self.mean, self._off)
        return self._options.least_over_off * off * self._kept(plan)

    def _kept(self, plan: Ints) -> float:
        """Return the share of the next window that changes to a plan leave."""
        if self._charge is None:
            return 1.0
        return max(0.0, 1 - float(self._charge.lost_windows[np.arange(len(plan)), plan].sum()))

    def over_off(self, plan: Ints) -> float:
        """Return the low end of a plan's goodput over the most that off may give."""
        if np.array_equal(plan, self._off):
            return 1.0
        low = float(np.quantile(self._samples(plan, is_against_off=True), TAIL))
        return low / self._off_goodput()

    def _off_goodput(self) -> float:
        expected = self._score(self.mean, self._off)
        if self._bounds is None:
            return expected
        return expected * float(self.mean.step_s[0, 0]) / self._bounds.least_off_s

    def safest(self, plans: Sequence[Ints]) -> Ints:
        """Return the first safe plan; off if there is none."""
        return next((plan for plan in plans if self.is_safe(plan)), self._off)

    def _stretch(self, plan: Ints) -> float:
        """Return by how much longer than expected a plan may take; 1 for off."""
        if self._bounds is None or np.array_equal(plan, self._off):
            return 1.0
        slowest = replace(self.mean, step_s=self._bounds.most_s[None])
        most_s, expected_s = (
            step_seconds(batch, np.array([0]), plan[None])[0] for batch in (slowest, self.mean)
        )
        return float(most_s / expected_s)

    def _score(self, batch: Batch, plan: Ints) -> float:
        return float(scores_of(batch, np.array([0]), plan[None])[0])

    def _samples(self, plan: Ints, *, is_against_off: bool) -> Floats:
        """Draw a plan's goodput; [N]."""
        error = self._step_errors(plan[None], is_against_off=is_against_off)
        drawn = self._draws[:, np.arange(len(plan)), plan] @ self.mean.rows[0]
        return np.asarray(drawn * np.exp(error * self._noise) / self._seconds(plan[None]))


class Belief:
    """What is believed of the routes of one scene, by arm."""

    def __init__(
        self, regimes: Regimes, knowledge: Knowledge, batch: Batch, context_tokens: float
    ) -> None:
        """Ask what was learned about one scene.

        Args:
            regimes: the behaviours of each route.
            knowledge: everything else that was learned.
            batch: the scene.
            context_tokens: KV entries that it holds.
        """
        self._context_tokens = context_tokens
        self._regimes = regimes
        self._knowledge = knowledge
        self._batch = batch
        self._kinds = [kind_of(arm, batch.loads[0]) for arm in batch.arms]
        self._drafting = [kind for kind in dict.fromkeys(self._kinds) if kind != OFF]
        self._deepest = max(1, int(batch.depth.max()))

    def mean_tokens(self) -> Floats:
        """Return the expected tokens of a pass; [R, A]."""
        return np.stack([self._by_arm(self._mean(name)) for name in self._batch.routes[0]])

    def mean_positions(self) -> Floats:
        """Return the expected positions of a step; of adaptive arms as the regimes have it; [R, A].

        Other arms keep those of the batch.
        """
        positions = self._batch.positions.copy()
        for index, kind in enumerate(self._kinds):
            if isinstance(kind, AtLoad):
                fills = [self.mean_fill(name, kind) for name in self._batch.routes[0]]
                drafted = self._batch.depth[index] * np.array(fills)
                positions[0, :, index] = self._batch.rows[0] * (1 + drafted)
        return positions

    def mean_fill(self, name: str, kind: AtLoad) -> float:
        """Return the share of its ceiling that an adaptive Setting keeps."""
        guess = self._knowledge.posterior(name, kind).fill
        return self._regimes.mean_fill(name, kind, guess)

    def draws(self, generator: np.random.Generator, num_draws: int, *, is_next: bool) -> Floats:
        """Draw the tokens of a pass in the next window, or as things stand now; [N, R, A]."""
        drawn = []
        for name in self._batch.routes[0]:
            guesses = {kind: self._guess(name, kind) for kind in self._drafting}
            drawn.append(
                self._regimes.drawn_tokens(name, guesses, generator, num_draws, is_next=is_next)
            )
        return np.stack([self._by_arm(tokens) for tokens in drawn], axis=1)

    def is_known(self, plan: Ints) -> Bools:
        """True for arms of the planned method within its evidence: they teach nothing; [R, A]."""
        same = self._batch.family == self._batch.family[plan][:, None]
        is_evident = self._batch.depth <= self._depths(self._batch.loads[0])
        return np.asarray((same & is_evident) | (self._batch.depth == 0))

    def lasting_windows(self, most: float) -> Floats:
        """Return for how many windows what an arm shows now may be of use; [R, A].

        At most as given, and that for methods never tried on a route: how they do there is news
        whatever its regime. No longer than one window where regimes do not last.
        """
        names = self._batch.routes[0]
        by_route = np.array([self._regimes.lasting_windows(name, most) for name in names])
        is_untried = self._depths(None) == 0
        return np.where(is_untried, most, by_route[:, None])

    def _depths(self, load: LoadLevel | None) -> Ints:
        """Return the evidenced draft positions of each arm's method; [R, A].

        Of adaptive ones at a load level, or at any where that is None.
        """
        arms, names = self._batch.arms, self._batch.routes[0]
        return np.array(
            [[self._knowledge.depth(name, arm, load) for arm in arms] for name in names]
        )

    def step_error_ratio(self, rows: float, positions: float) -> float:
        """Return the relative error of the time of a step of about this size."""
        cost = self._knowledge.cost
        return cost.step_error_ratio(round(rows), round(positions), self._context_tokens)

    def _mean(self, name: str) -> dict[Kind, Floats]:
        return {
            kind: self._regimes.mean_tokens(name, kind, *self._guess(name, kind))
            for kind in self._drafting
        }

    def _guess(self, name: str, kind: Kind) -> tuple[Floats, Floats]:
        """Return the first guess of acceptance, and how far drafts reach; [D] each."""
        posterior = self._knowledge.posterior(name, kind)
        mean = posterior.alpha / (posterior.alpha + posterior.beta)
        return mean[: self._deepest], posterior.reach[: self._deepest]

    def _by_arm(self, by_kind: Mapping[Kind, Floats]) -> Floats:
        """Take each arm's draft length out of its kind's tokens; [..., A]. Off gives one."""
        plain = np.ones(next(iter(by_kind.values())).shape[:-1]) if by_kind else np.ones(1)
        columns = zip(self._batch.arms, self._kinds, strict=True)
        return np.stack(
            [by_kind[kind][..., arm.k] if arm.k else plain for arm, kind in columns], axis=-1
        )
