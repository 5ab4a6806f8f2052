"""Which of its known behaviours a route shows now.

A route's texts come in kinds: code and talk about code, a busy hour and a quiet one. Each kind has
its own acceptance for every method, and it comes back. So a route holds a few regimes, each with
counts by method and position, and a chance for each to be the one in force; a window moves the
chances by Bayes' rule and adds its counts to the regime it belongs to. One method's counts thus
tell of the others, and a regime that returns is known at once. What fits none becomes a new regime,
copied from another route's where that fits.

How often regimes change is learned too: where they change every window, the chances are simply
their frequencies, and the prediction is the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from collectors.records import Method, Setting
from policy.adaptive import AtLoad, Kind, as_yield, kind_of
from policy.likelihood import LEVEL_STRENGTH, log_fits, trust_after, unseen_levels
from policy.likeness import Likeness
from policy.regime import Regime
from policy.statistics import Floats
from policy.tally import Tally, family_of, impossible_reason, tally_of
from policy.types import Evidence, Observation, Window

MAX_REGIMES = 6
STAYS = 20.0
"""Windows for which a regime is thought to stay, before any change was seen."""

NEW_WEIGHT = 1.0
"""Windows that the chance of something new counts for, against those seen."""

ALERT_WINDOWS = 20
ALERT_NEWNESS = 0.05
"""For how long, and how likely, something new is expected on every route after one showed it."""

RESTLESS = 0.2
"""Chance to leave a regime from which a route is said to have none that lasts."""

OFTEN = 0.1
"""Chance to leave a regime from which its change is no news."""

PATIENCE = 5
"""Windows in a row that may belong to none: where strangers are alike, none of them ever leads."""

STRANGE = 0.9
"""Chance from which some regime of another route is in force, whichever of them it is."""

SURE = 0.6
"""Chance from which a window's counts belong to a regime."""


@dataclass(slots=True, kw_only=True, eq=False)
class _RouteState:
    """The regimes of one route.

    Attributes:
        regimes: K of them.
        chances: [K] chance to be the one in force.
        suspects: chance of each regime of another route to be the one in force here.
        strangeness: chance that none of its own is in force.
        unassigned: windows since one surely belonged to a regime of its own.
        stays: windows after which the regime was the same, prior included.
        leaves: windows after which it was another.
        likeness: how alike passes of one window are, by what counts are kept by.
    """

    regimes: list[Regime] = field(default_factory=lambda: [Regime()])
    chances: Floats = field(default_factory=lambda: np.ones(1))
    suspects: dict[Regime, float] = field(default_factory=dict)
    strangeness: float = 0.0
    unassigned: int = 0
    stays: float = STAYS
    leaves: float = 1.0
    likeness: dict[Kind, Likeness] = field(default_factory=dict)

    @property
    def leave(self) -> float:
        """Chance that the next window is of another regime."""
        return self.leaves / (self.stays + self.leaves)

    def transitions(self) -> Floats:
        """Return the chance of each regime after each; [K, K].

        One chance to leave for all: pairs that once took turns could else do so for ever. Where to
        goes by how often a regime was in force.
        """
        if len(self.regimes) == 1:
            return np.ones((1, 1))
        often = np.array([1.0 + regime.windows for regime in self.regimes])
        onward = np.tile(often, (len(often), 1)) * (1 - np.eye(len(often)))
        onward *= self.leave / onward.sum(axis=1, keepdims=True)
        return np.asarray(onward + (1 - self.leave) * np.eye(len(often)))

    def newness(self) -> float:
        """Return the chance that the next window shows what this route never showed."""
        return NEW_WEIGHT / (NEW_WEIGHT + self.stays + self.leaves)

    def is_silent_on(self, families: set[Setting]) -> bool:
        """True where a regime is in force that never saw these methods, and so is not contradicted.

        Then it learns of them. By likelihood alone it would lose to any regime that knows them.
        """
        regime = self.surely()
        if regime is None or not regime.windows:
            return False
        return all(regime.is_silent_on(family) for family in families)

    def surely(self) -> Regime | None:
        """Return the regime that is in force, if one surely is."""
        chosen = int(np.argmax(self.chances))
        is_sure = (1 - self.strangeness) * self.chances[chosen] >= SURE
        return self.regimes[chosen] if is_sure else None

    def ahead(self) -> Floats:
        """Return the chance of each regime in the next window; [K]."""
        onward = self.chances @ self.transitions()
        return np.asarray(onward / onward.sum())


class Regimes:
    """What is believed of all routes."""

    def __init__(self, stale_windows: float = math.inf) -> None:
        """Know nothing.

        Args:
            stale_windows: windows of a regime without a try after which counts are doubted.
        """
        self._stale_windows = stale_windows
        self._alert = 0
        self._routes: dict[str, _RouteState] = {}

    def of(self, route: str) -> _RouteState:
        """Return the regimes of a route, also of one never seen."""
        return self._routes.setdefault(route, _RouteState())

    def observe(self, window: Window, priors: Mapping[tuple[str, Kind], Floats]) -> set[str]:
        """Take in a window; returns the routes whose regime changed, where that means anything.

        On a route whose regime changes often a change is no news.

        Args:
            window: what was seen; only live passes count.
            priors: [D] first guess of acceptance, by route and what counts are kept by.
        """
        changed = set()
        self._alert = max(0, self._alert - 1)
        for route, tallies in _live(window).items():
            state = self.of(route)
            before = int(np.argmax(state.chances))
            held = state.regimes[before]
            self._weigh(route, state, tallies, priors)
            is_other = state.regimes[int(np.argmax(state.chances))] is not held
            if is_other and held.windows and state.leave < OFTEN:
                changed.add(route)
        for seen in _adaptive(window):
            self._count_yield(seen, priors)
        return changed

    def _count_yield(self, seen: Observation, priors: Mapping[tuple[str, Kind], Floats]) -> None:
        """Add what an adaptive Setting yielded to the regime in force, if one surely is."""
        state, kind = self.of(seen.route), kind_of(seen.setting, seen.load)
        regime, counted = state.surely(), tally_of(seen)
        if regime is None or not isinstance(kind, AtLoad):
            return
        held = state.likeness.get(kind, Likeness())
        if regime.knows(kind):
            believed = regime.beta(kind, priors[seen.route, kind])
            state.likeness[kind] = held.updated(believed, as_yield(counted))
        regime.add_yield(kind, counted, held.weight(counted.passes))

    def lasting_windows(self, route: str, most: float) -> float:
        """Return for how many windows what is so now is expected to stay so, at most so many."""
        state = self.of(route)
        if state.leave >= RESTLESS:
            return 1.0
        return float((1 - (1 - state.leave) ** most) / state.leave)

    def mean_tokens(self, route: str, kind: Kind, prior: Floats, reach: Floats) -> Floats:
        """Return the expected tokens of the next window's passes for k = 0 to D; [D + 1]."""
        state = self.of(route)
        unseen, weights = unseen_levels(prior)
        guess = weights @ _tokens(reach * unseen[:, 0] / LEVEL_STRENGTH)
        tokens = np.tile(guess, (len(state.regimes), 1))
        seen = [i for i, regime in enumerate(state.regimes) if regime.knows(kind)]
        if seen:
            held = np.stack([state.regimes[i].beta(kind, prior) for i in seen])
            trust = np.array([[state.regimes[i].trust(kind)] for i in seen])
            known = _tokens(reach * held[:, 0] / held.sum(axis=1))
            tokens[seen] = trust * known + (1 - trust) * guess
        return np.asarray(state.ahead() @ tokens)

    def mean_fill(self, route: str, kind: AtLoad, guess: float) -> float:
        """Return the expected share of its ceiling that the next window's drafts keep."""
        state = self.of(route)
        fills = [regime.fill(kind, guess) for regime in state.regimes]
        return float(state.ahead() @ np.array(fills))

    def drawn_tokens(
        self,
        route: str,
        guesses: Mapping[Kind, tuple[Floats, Floats]],
        generator: np.random.Generator,
        num_draws: int,
        *,
        is_next: bool,
    ) -> dict[Kind, Floats]:
        """Draw the tokens of a pass, by what counts are kept by; [N, D + 1] each.

        Each draw takes one regime for all methods: they are good or bad together.

        Args:
            route: route name.
            guesses: first guess of acceptance and reach, [D] each.
            generator: source of the draws.
            num_draws: N.
            is_next: True for the next window alone, False for what is so now in the mean.
        """
        state = self.of(route)
        chosen = generator.choice(
            len(state.regimes), size=num_draws, p=state.ahead() if is_next else state.chances
        )
        found: dict[Kind, Floats] = {}
        for kind, (prior, reach) in guesses.items():
            unseen, weights = unseen_levels(prior)
            level = generator.choice(len(weights), size=num_draws, p=weights)
            parameters, luck = unseen[level], generator.random(num_draws)
            for index in set(chosen.tolist()):
                regime = state.regimes[index]
                if regime.knows(kind):
                    holds = (chosen == index) & (luck < regime.trust(kind))
                    parameters[holds] = regime.beta(kind, prior)
            if is_next:
                parameters = state.likeness.get(kind, Likeness()).of_one_window(parameters)
            found[kind] = _tokens(reach * generator.beta(parameters[:, 0], parameters[:, 1]))
        return found

    def _weigh(
        self,
        route: str,
        state: _RouteState,
        tallies: Mapping[Setting, Tally],
        priors: Mapping[tuple[str, Kind], Floats],
    ) -> None:
        scaled = {
            family: (tally, state.likeness.get(family, Likeness()).weight(tally.attempts[0]))
            for family, tally in tallies.items()
        }
        guess = {family: priors[route, family] for family in tallies}
        if not state.is_silent_on(set(tallies)):
            newness = max(state.newness(), ALERT_NEWNESS if self._alert else 0.0)
            if _update(state, scaled, guess, self._elsewhere(route), newness):
                self._alert = ALERT_WINDOWS
        _assign(state, scaled, guess, self._stale_windows)

    def _elsewhere(self, route: str) -> list[Regime]:
        """Return the regimes of all other routes."""
        return [
            regime
            for name, other in self._routes.items()
            if name != route
            for regime in other.regimes
            if regime.windows
        ]


def _update(
    state: _RouteState,
    scaled: Mapping[Setting, tuple[Tally, float]],
    guess: Mapping[Setting, Floats],
    elsewhere: Sequence[Regime],
    new: float,
) -> bool:
    """Move the chances by a window's counts; what fits nothing known becomes a new regime.

    Returns whether it did.

    Another route's regime is suspected for as long as it takes to be sure of it, since what differs
    little shows only over many windows.
    """
    half = new / 2 if elsewhere else new
    suspected = np.array([state.suspects.get(regime, 0.0) for regime in elsewhere])
    suspected = (1 - new) * suspected + half / max(1, len(elsewhere))
    fits = log_fits([*state.regimes, *elsewhere, Regime()], scaled, guess)
    fits = np.exp(fits - fits.max())
    size = len(state.regimes)
    joint = (1 - new) * state.chances[:, None] * state.transitions() * fits[:size]
    strange = np.append(suspected, half) * fits[size:]
    total = float(joint.sum() + strange.sum())
    if strange.max() > total / 2 or strange.sum() > STRANGE * total:
        _adopt(state, [*elsewhere, Regime()][int(np.argmax(strange))].copied(scaled))
        return True
    kept = float(np.trace(joint) / joint.sum())
    state.stays, state.leaves = state.stays + kept, state.leaves + 1 - kept
    state.chances = joint.sum(axis=0) / joint.sum()
    state.strangeness = float(strange.sum() / total)
    share = strange[:-1] / total
    state.suspects = {r: float(c) for r, c in zip(elsewhere, share, strict=True)}
    return False


def _adopt(state: _RouteState, regime: Regime) -> None:
    """Make a regime the one in force, in place of the least used where there are too many."""
    before = int(np.argmax(state.chances))
    kept = list(range(len(state.regimes)))
    if len(kept) >= MAX_REGIMES:
        kept.remove(min((i for i in kept if i != before), key=lambda i: state.regimes[i].windows))
    state.regimes = [*(state.regimes[i] for i in kept), regime]
    state.chances = np.append(np.full(len(kept), 0.05 / len(kept)), 0.95)
    state.suspects, state.strangeness, state.unassigned = {}, 0.0, 0
    state.leaves += 1


def _assign(
    state: _RouteState,
    scaled: Mapping[Setting, tuple[Tally, float]],
    guess: Mapping[Setting, Floats],
    stale_windows: float,
) -> None:
    """Add the counts to the regime they belong to, and learn how alike they are."""
    regime = state.surely()
    if regime is None and state.unassigned < PATIENCE:
        state.unassigned += 1
        return
    regime = regime or state.regimes[int(np.argmax(state.chances))]
    state.unassigned = 0
    regime.windows += 1
    regime.pass_over(scaled, stale_windows)
    for family, (tally, weight) in scaled.items():
        if regime.trust(family) < 1:
            regime.judge(family, trust_after(regime, family, tally, weight, guess[family]))
        if family in regime.counts:
            held = state.likeness.get(family, Likeness())
            state.likeness[family] = held.updated(regime.beta(family, guess[family]), tally)
        regime.add(family, tally, weight)


def _tokens(chances: Floats) -> Floats:
    """Return the tokens of a pass for k = 0 to D; [N, D] to [N, D + 1]."""
    tokens = 1 + np.cumsum(np.cumprod(chances, axis=1), axis=1)
    return np.concatenate([np.ones((len(chances), 1)), tokens], axis=1)


def _adaptive(window: Window) -> list[Observation]:
    """Return the live passes of adaptive Settings, those whose drafts were cut to nothing too."""
    return [
        seen
        for seen in window.observations
        if seen.evidence is Evidence.LIVE and seen.setting.is_adaptive
        if seen.passes and impossible_reason(seen) is None
    ]


def _live(window: Window) -> dict[str, dict[Setting, Tally]]:
    """Sum the live passes with a draft by route and family."""
    found: dict[str, dict[Setting, Tally]] = {}
    for seen in window.observations:
        is_draft = seen.evidence is Evidence.LIVE and seen.setting.method is not Method.OFF
        if is_draft and seen.attempts and seen.attempts[0] and impossible_reason(seen) is None:
            tallies = found.setdefault(seen.route, {})
            family = family_of(seen.setting)
            tallies[family] = tallies.get(family, Tally()).plus(tally_of(seen))
    return found
