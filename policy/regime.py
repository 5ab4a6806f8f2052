"""One kind of behaviour of a route: its counts by method and position."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from collectors.records import MAX_DRAFT_LENGTH, LoadLevel, Setting
from policy.adaptive import AtLoad, Kind, as_yield, fixed_of, tally_at
from policy.statistics import Floats
from policy.tally import Tally

MOST_PASSES = 4000.0
"""Passes a regime's position weighs at most, so that it can still move."""

COPIED_PASSES = 20.0
"""Passes that a regime copied from another route weighs at most."""

COPIED_TRUST = 0.5
STALE_TRUST = 0.9
"""Chance that the counts of a method still speak of the regime: where they were copied from another
route and the method was never tried here, and where it was not tried for long."""

SURE_TRUST = 0.95
"""Chance from which counts are no more doubted."""

PRIOR_STRENGTH = 3.0


@dataclass(slots=True, kw_only=True, eq=False)
class Regime:
    """One kind of behaviour.

    By its counts it is told from others; what adaptive Settings yield depends on the load beside
    the behaviour, so it is counted apart and tells nothing of which regime is in force.

    Attributes:
        counts: [2, D] weighted accepts and rejects by position, by family of Settings.
        windows: windows that belonged to it.
        trusts: chance that a family's counts speak of this regime, by families that were not tried
            in it of late.
        untried: windows of the regime since a family was last tried.
        yields: what adaptive families yielded, by load level.
    """

    counts: dict[Setting, Floats] = field(default_factory=dict)
    windows: float = 0.0
    trusts: dict[Setting, float] = field(default_factory=dict)
    untried: dict[Setting, int] = field(default_factory=dict)
    yields: dict[Setting, dict[LoadLevel, Tally]] = field(default_factory=dict)
    _borrowed: dict[AtLoad, Tally] = field(default_factory=dict)

    def knows(self, kind: Kind) -> bool:
        """True where a family was seen; of an adaptive one, at any load level or a fixed length."""
        if isinstance(kind, AtLoad):
            return kind.family in self.yields or fixed_of(kind.family) in self.counts
        return kind in self.counts

    def trust(self, kind: Kind) -> float:
        """Return the chance that the counts of a kind of Setting speak of this regime."""
        if isinstance(kind, AtLoad):
            return 1.0 if kind.family in self.yields else self.trust(fixed_of(kind.family))
        return self.trusts.get(kind, 1.0)

    def is_silent_on(self, family: Setting) -> bool:
        """True for a family that was never tried in this regime on this route."""
        return family not in self.counts or self.trust(family) == COPIED_TRUST

    def beta(self, kind: Kind, prior: Floats) -> Floats:
        """Return the parameters of the first positions' Betas.

        Args:
            kind: a family, or an adaptive one at a load level.
            prior: [D] first guess of acceptance, for as many positions as are wanted.

        Returns:
            [2, D] float64.
        """
        base = np.stack([PRIOR_STRENGTH * prior, PRIOR_STRENGTH * (1 - prior)])
        return base + self.held(kind)[:, : len(prior)]

    def held(self, kind: Kind) -> Floats:
        """Return the counts of a kind of Setting, zeros where there are none; [2, D].

        Of an adaptive one never seen those of fixed lengths: its drafts begin as theirs do, so it
        yields no more than its ceiling would.
        """
        if not isinstance(kind, AtLoad):
            return self.counts.get(kind, np.zeros((2, MAX_DRAFT_LENGTH)))
        if kind.family not in self.yields:
            return self.held(fixed_of(kind.family))
        seen = as_yield(self._at(kind))
        return np.stack([seen.accepts, seen.attempts - seen.accepts])

    def fill(self, kind: AtLoad, guess: float) -> float:
        """Return the mean draft length of an adaptive family over its ceiling."""
        held = self._at(kind)
        wanted = float(held.asked.sum())
        return min(1.0, (held.drafted + PRIOR_STRENGTH * guess) / (wanted + PRIOR_STRENGTH))

    def add(self, family: Setting, tally: Tally, weight: float) -> None:
        """Add a window's counts, and keep the weight of each position within its bound."""
        fresh = weight * np.stack([tally.accepts, tally.attempts - tally.accepts])
        self.counts[family] = _bounded(self.held(family) + fresh, MOST_PASSES)
        self.untried.pop(family, None)

    def judge(self, family: Setting, trust: float) -> None:
        """Believe a family's counts as far as a try bears them out; what it belies is dropped."""
        self.trusts[family] = trust
        if trust < COPIED_TRUST:
            del self.counts[family]
        if not COPIED_TRUST <= trust < SURE_TRUST:
            del self.trusts[family]

    def pass_over(self, tried: Collection[Setting], most: float) -> None:
        """Doubt the counts of families that were not tried for so many windows of the regime.

        They may stem from a time when the route was taken for another.
        """
        for family in self.counts.keys() - tried:
            self.untried[family] = self.untried.get(family, 0) + 1
            if self.untried[family] > most and self.trust(family) > STALE_TRUST:
                self.counts[family] = _bounded(self.counts[family], COPIED_PASSES)
                self.trusts[family] = STALE_TRUST

    def add_yield(self, kind: AtLoad, tally: Tally, weight: float) -> None:
        """Add what an adaptive family yielded in a window, and keep its weight within its bound."""
        self._borrowed.clear()
        by_load = self.yields.setdefault(kind.family, {})
        total = by_load.get(kind.load, Tally()).plus(tally, weight)
        by_load[kind.load] = Tally().plus(total, min(1.0, MOST_PASSES / max(total.passes, 1.0)))

    def copied(self, tried: Collection[Setting]) -> Regime:
        """Return the regime as a first guess for another route.

        Args:
            tried: families by which it was found to fit there; the counts of others are doubted.
        """
        return Regime(
            counts={f: _bounded(held, COPIED_PASSES) for f, held in self.counts.items()},
            trusts=dict.fromkeys(self.counts.keys() - tried, COPIED_TRUST),
            yields={
                family: {
                    load: Tally().plus(held, min(1.0, COPIED_PASSES / max(held.passes, 1.0)))
                    for load, held in by_load.items()
                }
                for family, by_load in self.yields.items()
            },
        )

    def fade(self, weight: float) -> None:
        """Let all counts weigh less."""
        self._borrowed.clear()
        self.windows *= weight
        for family, counts in self.counts.items():
            self.counts[family] = weight * counts
        for by_load in self.yields.values():
            for load, held in by_load.items():
                by_load[load] = Tally().plus(held, weight)

    def _at(self, kind: AtLoad) -> Tally:
        """Return the counts at a load level, borrowed ones included; kept until they change."""
        if kind not in self._borrowed:
            by_load = self.yields.get(kind.family, {})
            self._borrowed[kind] = tally_at(by_load, kind.load)
        return self._borrowed[kind]


def _bounded(counts: Floats, most: float) -> Floats:
    total = counts.sum(axis=0)
    return np.asarray(counts * np.minimum(1.0, most / np.maximum(total, 1e-9)))
