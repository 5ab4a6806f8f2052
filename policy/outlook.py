"""What passes will yield for as long as a plan stays in force, not in the next window only.

A route's regimes take turns, so over many windows each counts by how much of them it will have,
given which one is in force now. Each regime knows the live counts made under it; what was replayed
or scored on recorded answers belongs to none and is a first guess for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from scipy import special

from collectors.records import Setting
from policy.acceptance import AcceptanceModel, Posterior
from policy.adaptive import AtLoad, Kind, as_yield
from policy.regime import Regime
from policy.regimes import Regimes
from policy.statistics import Floats, Ints, beta_parameters
from policy.types import FeatureCheck

GUESS_PASSES = 3.0
"""Passes that the mean over all regimes counts for within one."""

LEAST_TRIALS = 1e-9

_Beliefs: TypeAlias = tuple[tuple[float, Posterior], ...]
"""What to believe of a regime, with chances: its counts, and nothing where these are doubted."""


class Outlook:
    """What is believed of every route, and draws of it, over a stretch of windows."""

    def __init__(
        self,
        acceptance: AcceptanceModel,
        regimes: Regimes,
        generator: np.random.Generator,
        *,
        num_draws: int,
        num_windows: int,
        features: Mapping[Setting, FeatureCheck] | None = None,
    ) -> None:
        """Look ahead.

        Args:
            acceptance: counts of every kind of evidence, faded to the present.
            regimes: the behaviours of each route.
            generator: source of the draws.
            num_draws: draws of each yield.
            num_windows: windows for which a plan is thought to stay in force.
            features: by kind of Setting, how far requests of late differ from all of a route.
        """
        self._acceptance = acceptance
        self._regimes = regimes
        self._generator = generator
        self._num_draws = num_draws
        self._num_windows = num_windows
        self._features = features or {}
        self._now: dict[str, Ints] = {}
        self._shares: dict[str, Floats] = {}
        self._draws: dict[tuple[str, Kind], Floats] = {}

    def mean_tokens(self, route: str, kind: Kind) -> Floats:
        """Return the expected tokens of a pass for k = 0 to D; [D + 1]."""
        tokens = np.stack([_expected(held) for held in self._beliefs(route, kind)])
        if len(tokens) == 1:
            return np.asarray(tokens[0])
        return np.asarray(self._regimes.of(route).chances @ self._share(route) @ tokens)

    def drawn_tokens(self, route: str, kind: Kind) -> Floats:
        """Draw the tokens of a pass for k = 0 to D; [N, D + 1].

        A draw has one regime in force at the start for all methods: they are good or bad together.
        """
        key = (route, kind)
        if key not in self._draws:
            drawn = [self._sampled(held) for held in self._beliefs(route, kind)]
            self._draws[key] = drawn[0]
            if len(drawn) > 1:
                shares = self._share(route)[self._started(route)]
                self._draws[key] = np.einsum("nk,knd->nd", shares, np.stack(drawn))
        return self._draws[key]

    def _share(self, route: str) -> Floats:
        """Return the share of the windows ahead that each regime has after each; [K, K]."""
        if route not in self._shares:
            onward = self._regimes.of(route).transitions()
            total, ahead = np.zeros_like(onward), np.eye(len(onward))
            for _ in range(self._num_windows):
                total, ahead = total + ahead, ahead @ onward
            self._shares[route] = total / total.sum(axis=1, keepdims=True)
        return self._shares[route]

    def _started(self, route: str) -> Ints:
        """Draw the regime that is in force now; [N]."""
        if route not in self._now:
            chances = self._regimes.of(route).chances
            self._now[route] = self._generator.choice(
                len(chances), size=self._num_draws, p=chances / chances.sum()
            )
        return self._now[route]

    def mean_fill(self, route: str, kind: AtLoad) -> float:
        """Return the expected share of its ceiling that an adaptive Setting's drafts keep."""
        guess = self._acceptance.posterior(route, kind).fill
        fills = [regime.fill(kind, guess) for regime in self._regimes.of(route).regimes]
        return float(self._regimes.of(route).chances @ self._share(route) @ np.array(fills))

    def _sampled(self, held: _Beliefs) -> Floats:
        """Draw the tokens of a pass, each belief in its share of the draws."""
        drawn = [
            belief.sampled_tokens_per_pass(self._generator, self._num_draws) for _, belief in held
        ]
        if len(drawn) == 1:
            return drawn[0]
        is_known = self._generator.random(self._num_draws) < held[0][0]
        return np.where(is_known[:, None], *drawn)

    def _beliefs(self, route: str, kind: Kind) -> list[_Beliefs]:
        """Return the belief about a method in each regime of a route, for requests as of late.

        One belief where no regime knows the method: it is unknown in all of them alike.
        """
        check = self._features.get(kind.family if isinstance(kind, AtLoad) else kind)
        shift = check.shift_by_route.get(route, 0.0) if check else 0.0
        return [
            tuple((share, _shifted(belief, shift)) for share, belief in held)
            for held in self._by_regime(route, kind)
        ]

    def _by_regime(self, route: str, kind: Kind) -> list[_Beliefs]:
        pooled = self._acceptance.posterior(route, kind)
        regimes = self._regimes.of(route).regimes
        if not any(regime.knows(kind) for regime in regimes):
            return [((1.0, pooled),)]
        offline = self._acceptance.offline(route, kind)
        if isinstance(kind, AtLoad):
            offline = as_yield(offline)
        mean = pooled.alpha / (pooled.alpha + pooled.beta)
        guess = GUESS_PASSES * np.stack([mean, 1 - mean])
        guess += np.stack([offline.accepts, offline.attempts - offline.accepts])
        return [_belief(pooled, regime, kind, guess) for regime in regimes]


def _expected(held: _Beliefs) -> Floats:
    """Return the expected tokens of a pass for k = 0 to D; [D + 1]."""
    return np.asarray(sum(share * belief.tokens_per_pass() for share, belief in held))


def _shifted(belief: Posterior, shift: float) -> Posterior:
    """Return a belief whose log odds lie elsewhere, of the same weight."""
    if not shift:
        return belief
    weight = belief.alpha + belief.beta
    mean = special.expit(special.logit(belief.alpha / weight) + shift)
    alpha, beta = beta_parameters(mean, weight)
    return replace(belief, alpha=alpha, beta=beta)


def _belief(pooled: Posterior, regime: Regime, kind: Kind, guess: Floats) -> _Beliefs:
    known = _counted(pooled, guess + regime.held(kind))
    trust = regime.trust(kind)
    return ((trust, known), (1 - trust, _counted(pooled, guess))) if trust < 1 else ((1.0, known),)


def _counted(pooled: Posterior, counts: Floats) -> Posterior:
    alpha, beta = np.maximum(counts, LEAST_TRIALS)
    return replace(pooled, alpha=alpha, beta=beta)
