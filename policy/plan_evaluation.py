"""One batch under any plan: what is expected of it, and draws of what it may be.

Two figures say what a change brings. A route's speed is its tokens per second and request: tokens
of a pass over the time of a step, so that over speculation off it is at most the tokens of a pass.
The engine's total is the tokens per second of all routes together. A step's time includes its part
of reading prompts, which grows with the tokens it delivers: who answers faster reads more of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from policy.belief import Belief
from policy.goodput import NO_DATA_S, Batch, Rates, picked, rates, scores_of, step_seconds, worth
from policy.interval import Interval
from policy.planner import single_changes
from policy.statistics import Floats, Ints, sample_interval

OFF_ARM = 0
_LONGEST_S = NO_DATA_S * 1e-12
_MIN_SCORE = 1e-15
_SCENE = np.array([0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one plan is for a route, and for the engine, against another plan.

    Each figure follows from the others: route_speed = tokens_per_pass / former_tokens_per_pass /
    step_ratio, and engine_total = (1 - token_share + token_share * tokens_per_pass /
    former_tokens_per_pass) / step_ratio where no other route changes.

    Attributes:
        tokens_per_pass: of the route, under the plan.
        former_tokens_per_pass: under the other plan.
        step_ratio: time of a step over that under the other plan, reading prompts included.
        token_share: the route's share of the engine's tokens under the other plan, 0 to 1.
        route_speed: tokens per second of a request of the route, over the other plan's.
        engine_total: tokens per second of the engine, over the other plan's.
    """

    tokens_per_pass: Interval
    former_tokens_per_pass: float
    step_ratio: Interval
    token_share: float
    route_speed: Interval
    engine_total: Interval


class PlanEvaluation:
    """One batch evaluated by what is believed, and by draws of what may be."""

    def __init__(
        self,
        batch: Batch,
        belief: Belief,
        generator: np.random.Generator,
        num_draws: int,
        *,
        prompt_s_per_token: float = 0.0,
        error_scale: float = 1.0,
    ) -> None:
        """Draw from the posterior once, for all plans alike.

        Args:
            batch: one scene.
            belief: what is believed of its routes.
            generator: source of the draws.
            num_draws: how many there are.
            prompt_s_per_token: engine time that reads prompts, by token delivered, in seconds.
            error_scale: factor on every uncertainty, 1 or more, as past predictions have earned.
        """
        self.belief = belief
        next_draws = belief.draws(generator, num_draws, is_next=True)
        draws = belief.draws(generator, num_draws, is_next=False)
        self.mean = replace(
            batch,
            tokens=batch.rows[:, :, None] * belief.mean_tokens()[None],
            positions=belief.mean_positions(),
        )
        self.next_draws = _widened(next_draws, batch, error_scale)
        self.draws = _widened(draws, batch, error_scale)
        self.noise = error_scale * generator.standard_normal(num_draws)
        self.next_paces = belief.next_paces(generator, num_draws)
        self.off = np.full(batch.rows.shape[1], OFF_ARM, dtype=np.intp)
        self._prompt_s = prompt_s_per_token

    def rates(self, plan: Ints) -> Rates:
        """Predict one plan, [R]."""
        return rates(self.mean, _SCENE, plan[None])

    def seconds(self, plans: Ints) -> Floats:
        """Return the time of a step that reads no prompt, by plan [N, R]; [N]."""
        return step_seconds(self.mean, np.zeros(len(plans), dtype=np.intp), plans)

    def step_s(self, plan: Ints) -> float:
        """Return the time of a step that reads no prompt under one plan, in seconds."""
        return float(self.seconds(plan[None])[0])

    def is_known(self, plan: Ints) -> bool:
        """True where the step time of a plan is known."""
        return self.step_s(plan) < _LONGEST_S

    def score(self, plan: Ints, batch: Batch | None = None) -> float:
        """Return what the planner makes of a plan, in this batch or another of its kind."""
        return float(scores_of(batch or self.mean, _SCENE, plan[None])[0])

    def scores(self, plan: Ints, route: int) -> Floats:
        """Return the score of a plan with each arm for a route; -1 without a known time; [A]."""
        scores = single_changes(self.mean, _SCENE, plan[None])[0, route]
        return np.where(scores > _MIN_SCORE, scores, -1.0)

    def tpot_s(self, plan: Ints, route: int) -> float:
        """Return a route's time per output token under a plan, in seconds."""
        tokens = self.mean.tokens[0, route, plan[route]]
        return self.step_s(plan) * float(self.mean.rows[0, route] / tokens)

    def effect(self, plan: Ints, base: Ints, route: int) -> Effect:
        """Return what a plan is for a route and for the engine, against another plan."""
        mean_ratio, ratios = self._step_ratios(plan, base)
        new, old = self._tokens(plan), self._tokens(base)
        drawn, drawn_old = self._drawn_tokens(plan), self._drawn_tokens(base)
        speed = float(new[route] / old[route]) / mean_ratio
        total = float(new.sum() / old.sum()) / mean_ratio
        rows = float(self.mean.rows[0, route])
        return Effect(
            tokens_per_pass=sample_interval(drawn[:, route] / rows, float(new[route]) / rows),
            former_tokens_per_pass=float(old[route]) / rows,
            step_ratio=sample_interval(ratios, mean_ratio),
            token_share=self.token_share(base, route),
            route_speed=sample_interval(drawn[:, route] / drawn_old[:, route] / ratios, speed),
            engine_total=sample_interval(drawn.sum(axis=1) / drawn_old.sum(axis=1) / ratios, total),
        )

    def token_share(self, plan: Ints, route: int) -> float:
        """Return a route's share of the engine's tokens under a plan, 0 to 1."""
        tokens = self._tokens(plan)
        return float(tokens[route] / tokens.sum())

    def gain(self, plan: Ints, base: Ints) -> Interval:
        """Return what the engine gains by a plan over another, as a share of the other's goodput.

        Tokens of routes whose limits a step breaks count for less, as they do for the planner.
        """
        mean_ratio, ratios = self._step_ratios(plan, base)
        kept, kept_old = self._kept(plan), self._kept(base)
        mean = float((self._tokens(plan) @ kept) / (self._tokens(base) @ kept_old)) / mean_ratio
        drawn = (self._drawn_tokens(plan) @ kept) / (self._drawn_tokens(base) @ kept_old)
        return sample_interval(drawn / ratios - 1, mean - 1)

    def drawn_goodput(self, plan: Ints) -> Floats:
        """Return the goodput of steps that read no prompt, by draw; [N]."""
        return np.asarray(self._drawn_tokens(plan) @ self._kept(plan) / self.step_s(plan))

    def goodput(self, plan: Ints) -> Interval:
        """Return the tokens per second of steps that read no prompt."""
        error = float(self.step_errors(plan[None])[0])
        samples = self.drawn_goodput(plan) * np.exp(error * self.noise)
        return sample_interval(samples, float(self.rates(plan).goodput[0]))

    def step_errors(self, plans: Ints) -> Floats:
        """Return the relative error of the step time of plans [N, R]; [N]."""
        return self._by_size(plans, self.belief.step_error_ratio)

    def pace_errors(self, plans: Ints) -> Floats:
        """Return what not knowing the machine's pace adds to those errors; [N]."""
        return self._by_size(plans, self.belief.pace_error_ratio)

    def _by_size(self, plans: Ints, error_of: Callable[[float, float], float]) -> Floats:
        rows = float(self.mean.rows[0].sum())
        sizes, place = np.unique(np.rint(self._positions(plans)), return_inverse=True)
        return np.array([error_of(rows, size) for size in sizes], dtype=np.float64)[place]

    def errors_over_off(self, plans: Ints) -> Floats:
        """Return the same of a step time over that of off; [N].

        Times of nearly equal steps err together: the full error from a doubling of positions on.
        The pace at which two steps were timed errs apart.
        """
        growth = np.log2(np.maximum(self._positions(plans) / self.mean.rows[0].sum(), 1.0))
        apart = self.step_errors(plans) * np.minimum(growth, 1.0)
        paces = np.hypot(self.pace_errors(plans), self.pace_errors(self.off[None]))
        return np.asarray(np.hypot(apart, np.where(growth > 0, paces, 0.0)))

    def ratio_error(self, plan: Ints, base: Ints) -> float:
        """Return the relative error of the ratio of two step times."""
        both = np.stack([plan, base])
        positions = self._positions(both)
        apart = min(1.0, abs(float(np.log2(positions[0] / positions[1]))))
        return math.hypot(float(self.step_errors(both).max()) * apart, self.pace_error(plan, base))

    def pace_error(self, plan: Ints, base: Ints) -> float:
        """Return the part of it that comes from not knowing at which pace both were timed."""
        both = np.stack([plan, base])
        if float(np.ptp(np.rint(self._positions(both)))) == 0:
            return 0.0
        return float(np.hypot(*self.pace_errors(both)))

    def _step_ratios(self, plan: Ints, base: Ints) -> tuple[float, Floats]:
        """Return the time of a step over that under another plan, expected and drawn; [N].

        What computes more is no faster, and what computes less no slower, in any draw beyond what
        is expected.
        """
        if np.array_equal(plan, base):
            return 1.0, np.ones(len(self.noise))
        new_s, old_s = self.step_s(plan), self.step_s(base)
        prompts, prompts_old = (self._prompt_s * self._tokens(each).sum() for each in (plan, base))
        mean = float((new_s + prompts) / (old_s + prompts_old))
        slow = np.exp(self.ratio_error(plan, base) * self.noise)
        drawn, drawn_old = (
            self._prompt_s * self._drawn_tokens(each).sum(axis=1) for each in (plan, base)
        )
        ratios = np.asarray((new_s * slow + drawn) / (old_s + drawn_old))
        if self._computes_more(plan, base):
            ratios = np.maximum(ratios, min(1.0, mean))
        elif self._computes_more(base, plan):
            ratios = np.minimum(ratios, max(1.0, mean))
        return mean, ratios

    def _computes_more(self, plan: Ints, base: Ints) -> bool:
        """True where every route drafts by the same method as in another plan, or more deeply."""
        depth, family = self.mean.depth, self.mean.family
        is_deeper = (family[plan] == family[base]) & (depth[plan] >= depth[base])
        return bool(np.all(is_deeper | (base == OFF_ARM)))

    def _positions(self, plans: Ints) -> Floats:
        """Return the positions of steps by plan [N, R]; of full drafts where steps hold one row."""
        if self.mean.has_own_steps:
            return np.asarray((self.mean.rows[0] * (1 + self.mean.depth[plans])).sum(axis=1))
        scene = np.zeros(len(plans), dtype=np.intp)
        return np.asarray(picked(self.mean.positions, scene, plans).sum(axis=1))

    def _tokens(self, plan: Ints) -> Floats:
        """Return the tokens that each route's rows yield in a step; [R]."""
        return np.asarray(picked(self.mean.tokens, _SCENE, plan[None])[0])

    def _drawn_tokens(self, plan: Ints) -> Floats:
        """Return the same by draw; [N, R]."""
        return np.asarray(self.draws[:, np.arange(len(plan)), plan] * self.mean.rows[0])

    def _kept(self, plan: Ints) -> Floats:
        """Return what a token of each route counts for under its limits; [R]."""
        limits = picked(self.mean.limit_s, _SCENE, plan[None])[0]
        return worth(limits, np.array(self.step_s(plan)))


def with_arm(plan: Ints, route: int, arm: int) -> Ints:
    """Return the plan with one route's arm replaced."""
    changed = plan.copy()
    changed[route] = arm
    return changed


def _widened(draws: Floats, batch: Batch, error_scale: float) -> Floats:
    """Return draws [N, R, A] spread further around their means, within 1 and k + 1 tokens."""
    if error_scale == 1.0:
        return draws
    mean = draws.mean(axis=0)
    return np.asarray(np.clip(mean + error_scale * (draws - mean), 1.0, 1.0 + batch.depth))
