"""What windows teach: acceptance, regimes and costs, learned alike by all who decide.

The control loop keeps one learner for as long as it runs; ``recommend`` folds the stored windows
into a new one each time, so that the store is all it has to remember.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from policy.acceptance import AcceptanceModel
from policy.adaptive import Kind, kind_of
from policy.cost import CostModel
from policy.regimes import Regimes
from policy.statistics import Floats
from policy.switching import SwitchCost
from policy.tally import family_of
from policy.types import Window

FADES_A_HALF_LIFE = 16
"""How often counts of regimes fade within a half-life: seldom enough to cost nothing."""


MOST_IGNORED = 1000
"""Left out observations that are named at most: a loop runs for ever."""


class Learner:
    """Everything learned from windows.

    Attributes:
        acceptance: counts by position, faded, of every kind of evidence.
        cost: step and draft times.
        regimes: the behaviours of each route, from live traffic.
        switching: what changes of Settings cost.
        ignored: what was left out because it cannot have been counted, the first of it.
    """

    def __init__(
        self, acceptance: AcceptanceModel, cost: CostModel, stale_windows: float = math.inf
    ) -> None:
        """Start without knowledge.

        Args:
            acceptance: an empty model with its half-lives.
            cost: the same for times.
            stale_windows: windows without a try after which counts of a method are doubted.
        """
        self.acceptance = acceptance
        self.cost = cost
        self.regimes = Regimes(stale_windows)
        self.switching = SwitchCost()
        self.ignored: list[str] = []
        self._faded_s: dict[str, float] = {}

    def observe(self, window: Window) -> set[str]:
        """Learn acceptance from a window; returns the routes that behave otherwise than before."""
        self._fade_to(window)
        self.switching.observe(window)
        changed = self.regimes.observe(window, _priors(self.acceptance, window))
        self.acceptance = self.acceptance.updated(window)
        if self.acceptance.ignored:
            self._note(self.acceptance.ignored)
            self.acceptance = replace(self.acceptance, ignored=())
        return changed

    def price(self, window: Window) -> None:
        """Learn times from a window; apart, since fits of times cost more than counting."""
        self.cost = self.cost.updated(window)
        if self.cost.ignored:
            self._note(self.cost.ignored)
            self.cost = replace(self.cost, ignored=())

    def _note(self, reasons: tuple[str, ...]) -> None:
        self.ignored += reasons[: MOST_IGNORED - len(self.ignored)]

    def _fade_to(self, window: Window) -> None:
        if not math.isfinite(window.end_s):
            return
        for route in {seen.route for seen in window.observations}:
            half_life_s = self.acceptance.half_life_of(route)
            age_s = window.end_s - self._faded_s.setdefault(route, window.end_s)
            if age_s * FADES_A_HALF_LIFE >= half_life_s:
                for regime in self.regimes.of(route).regimes:
                    regime.fade(2.0 ** (-age_s / half_life_s))
                self._faded_s[route] = window.end_s


def _priors(acceptance: AcceptanceModel, window: Window) -> Mapping[tuple[str, Kind], Floats]:
    """Return the first guess of acceptance for whatever a window saw drafted."""
    drafted = [seen for seen in window.observations if seen.setting.k]
    places: set[tuple[str, Kind]] = {(seen.route, family_of(seen.setting)) for seen in drafted}
    places |= {(seen.route, kind_of(seen.setting, seen.load)) for seen in drafted}
    found = {}
    for place in places:
        posterior = acceptance.posterior(*place)
        found[place] = posterior.alpha / (posterior.alpha + posterior.beta)
    return found
