"""Acceptance by draft position: how often a drafted token is kept, given that all before it were.

Each position is its own hazard: its denominator is the attempts at that position, so passes with
other draft lengths, or cut short, add evidence without bias. A route's estimate is shrunk to the
method's over all routes, and that to the model's over all methods; counts fade with time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from collectors.records import MAX_DRAFT_LENGTH, LoadLevel, Method, Setting
from policy.adaptive import AtLoad, Kind, kind_of, tally_at
from policy.errors import InvalidInput
from policy.statistics import Floats, beta_intervals, beta_parameters
from policy.tally import Tally, family_of, impossible_reason, tally_of
from policy.types import AcceptanceCurve, Evidence, Observation, Window

EVIDENCE_WEIGHTS: Mapping[Evidence, float] = {
    Evidence.LIVE: 1.0,
    Evidence.REPLAY: 0.5,
    Evidence.COUNTERFACTUAL: 0.3,
}
"""What a pass counts for: replays repeat captured prompts, counterfactuals were never run."""

WINDOW_CAP_PASSES = 500.0
"""Most passes one window can count for in one cell: a burst is many looks at few requests."""

ROUTE_STRENGTH = 10.0
METHOD_STRENGTH = 4.0
FIRST_GUESS = 0.5
GUESS_STRENGTH = 2.0
UNSEEN_STRENGTH = 2.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posterior:
    """What is believed of one method on one route.

    Attributes:
        alpha: [D] first parameter of each position's Beta.
        beta: [D] second parameter.
        reach: [D] chance that a draft goes on to the position when all before it were accepted;
            the first one is the coverage. Below 1 further on only where drafts fall short of k.
        fill: mean draft length over k, in passes with a draft.
        passes: effective passes behind the coverage.
    """

    alpha: Floats
    beta: Floats
    reach: Floats
    fill: float
    passes: float

    @property
    def coverage(self) -> float:
        """Share of passes in which the method finds a draft."""
        return float(self.reach[0])

    def as_yield(self) -> Posterior:
        """Return the belief in which a draft that ends early counts as a token not accepted."""
        weight = self.alpha + self.beta
        alpha, beta = beta_parameters(self.reach * self.alpha / weight, weight)
        ones, fill = np.ones_like(self.reach), min(1.0, self.coverage * self.fill)
        return replace(self, alpha=alpha, beta=beta, reach=ones, fill=fill)

    def tokens_per_pass(self) -> Floats:
        """Return mean tokens of a pass for k = 0 to D; [D + 1]."""
        survival = np.cumprod(self.reach * self.alpha / (self.alpha + self.beta))
        return np.concatenate(([1.0], 1 + np.cumsum(survival)))

    def sampled_tokens_per_pass(self, generator: np.random.Generator, num_draws: int) -> Floats:
        """Draw tokens of a pass for k = 0 to D from the posterior; [num_draws, D + 1]."""
        shape = (num_draws, len(self.alpha))
        hazards = generator.beta(self.alpha, self.beta, size=shape)
        reach = np.broadcast_to(self.reach, shape).copy()
        a, b = beta_parameters(self.reach[:1], np.array([self.passes + GUESS_STRENGTH]))
        reach[:, 0] = generator.beta(a[0], b[0], size=num_draws) if self.coverage < 1 else 1.0
        survival = np.cumprod(reach * hazards, axis=1)
        return np.concatenate((np.ones((num_draws, 1)), 1 + np.cumsum(survival, axis=1)), axis=1)

    def positions_per_row(self, k: int) -> float:
        """Return the mean positions a row takes in the target pass at draft length k."""
        return 1 + self.coverage * self.fill * k


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    route: str
    kind: Kind
    evidence: Evidence
    is_greedy: bool | None


@dataclass(frozen=True, kw_only=True, eq=False)
class AcceptanceModel:
    """Discounted counts of every route and method, and the estimates made of them.

    Attributes:
        half_life_s: time in which a count loses half its weight, in seconds.
        half_life_by_route: other half-lives, by route.
        as_of_s: moment to which the counts have faded, Unix seconds; None before the first window.
        cells: counts by route, Setting less k (of an adaptive one, load level too), evidence and
            sampling.
        ignored: observations left out, and why.
    """

    half_life_s: float
    half_life_by_route: Mapping[str, float]
    as_of_s: float | None
    cells: Mapping[_Cell, Tally]
    ignored: tuple[str, ...]

    @classmethod
    def empty(
        cls, half_life_s: float = 1800.0, half_life_by_route: Mapping[str, float] | None = None
    ) -> AcceptanceModel:
        """Return a model that has seen nothing.

        Raises:
            InvalidInput: a half-life is not above 0.
        """
        by_route = dict(half_life_by_route or {})
        for half_life in (half_life_s, *by_route.values()):
            if not half_life > 0:
                raise InvalidInput(f"a half-life must be above 0 seconds, got {half_life}")
        return cls(
            half_life_s=half_life_s,
            half_life_by_route=by_route,
            as_of_s=None,
            cells={},
            ignored=(),
        )

    def faded_to(self, now_s: float) -> AcceptanceModel:
        """Return the model with its counts faded to a moment; an earlier one changes nothing."""
        if self.as_of_s is None or not now_s > self.as_of_s:
            return self
        age_s = now_s - self.as_of_s
        cells = {cell: self._faded(cell, tally, age_s) for cell, tally in self.cells.items()}
        return replace(self, cells=cells, as_of_s=now_s)

    def updated(self, window: Window) -> AcceptanceModel:
        """Return the model with a window's observations added.

        A late window comes in as faded as if it had come in time. Observations that cannot have
        been counted are left out and named in ``ignored``.
        """
        if not math.isfinite(window.end_s):
            return self._without(f"window ends at {window.end_s}, which is no time")
        model = self.faded_to(window.end_s)
        as_of_s = window.end_s if model.as_of_s is None else model.as_of_s
        reasons = [impossible_reason(observation) for observation in window.observations]
        sound = [o for o, reason in zip(window.observations, reasons, strict=True) if not reason]
        cells = dict(model.cells)
        for cell, tally in _window_tallies(sound).items():
            late = self._faded(cell, tally, as_of_s - window.end_s)
            cells[cell] = cells.get(cell, Tally()).plus(late)
        ignored = (*self.ignored, *(reason for reason in reasons if reason))
        return replace(model, cells=cells, as_of_s=as_of_s, ignored=ignored)

    def half_life_of(self, route: str) -> float:
        """Return the time in which a route's counts lose half their weight, in seconds."""
        return self.half_life_by_route.get(route, self.half_life_s)

    def offline(self, route: str, method: Method | Kind) -> Tally:
        """Return what is known of a method on a route without having served it, weighted."""
        total = Tally()
        for cell in self._cells(_matcher(method), route, None):
            if cell.evidence is not Evidence.LIVE:
                total = total.plus(self.cells[cell])
        return total

    def depth(self, route: str, method: Method | Kind, *, min_passes: float = 30.0) -> int:
        """Return how many draft positions a route was asked for in enough passes."""
        asked = self._sum(_matcher(method), route).asked
        return int(np.argmin(np.append(asked >= min_passes, False)))

    def evidence(
        self, route: str, method: Method | Kind, greedy: bool | None = None
    ) -> tuple[Evidence, ...]:
        """Return the kinds of evidence behind a method, or one Setting's family, on a route."""
        kinds = {cell.evidence for cell in self._cells(_matcher(method), route, greedy)}
        return tuple(kind for kind in Evidence if kind in kinds)

    def posterior(self, route: str, method: Method | Kind, greedy: bool | None = None) -> Posterior:
        """Return the belief about a method, or about one Setting whatever its k, on a route.

        Args:
            route: route name.
            method: a method pools its fixed Settings; a Setting keeps rule, lookup window and
                drafter; at a load level, what an adaptive one yields there.
            greedy: use only greedy or only sampled rows, with those of unknown kind; None for all.
        """
        pooled, own = self._pooled(method, greedy), self._known(method, route, greedy)
        found = self._posterior(own, pooled, greedy)
        return found.as_yield() if isinstance(method, AtLoad) else found

    def _posterior(self, own: Tally, pooled: Tally, greedy: bool | None) -> Posterior:
        model_mean = _chained_mean(self._pooled(None, greedy))
        method_mean = _shrunk(pooled, model_mean, np.full(MAX_DRAFT_LENGTH, METHOD_STRENGTH))
        strength = np.where(own.asked > 0, ROUTE_STRENGTH, UNSEEN_STRENGTH)
        mean = _shrunk(own, method_mean, strength)
        alpha, beta = beta_parameters(mean, own.attempts + strength)
        return Posterior(
            alpha=alpha,
            beta=beta,
            reach=_reach(own, pooled),
            fill=_ratio(own.drafted, own.wanted, _ratio(pooled.drafted, pooled.wanted, 1.0)),
            passes=own.passes,
        )

    def curve(
        self, route: str, method: Method | Setting, depth: int, greedy: bool | None = None
    ) -> AcceptanceCurve:
        """Return acceptance by position to a depth, as the planner uses it.

        Positions never asked for carry the tail of what is known, with a wide interval and zero
        attempts.

        Raises:
            InvalidInput: the depth is not 1 to the longest draft.
        """
        if not 1 <= depth <= MAX_DRAFT_LENGTH:
            raise InvalidInput(f"depth must be 1 to {MAX_DRAFT_LENGTH}, got {depth}")
        posterior = self.posterior(route, method, greedy)
        own = self._sum(_matcher(method), route, greedy)
        return AcceptanceCurve(
            method=method.method if isinstance(method, Setting) else method,
            conditional=beta_intervals(posterior.alpha[:depth], posterior.beta[:depth]),
            attempts=tuple(float(count) for count in own.attempts[:depth]),
            coverage=posterior.coverage,
            evidence=self.evidence(route, method, greedy),
            shares=self._shares(route, method, greedy),
        )

    def _shares(
        self, route: str, method: Method | Setting, greedy: bool | None
    ) -> dict[Evidence, float]:
        passes = dict.fromkeys(self.evidence(route, method, greedy), 0.0)
        for cell in self._cells(_matcher(method), route, greedy):
            passes[cell.evidence] += self.cells[cell].passes
        total = sum(passes.values())
        return {kind: count / total for kind, count in passes.items() if total}

    def _without(self, reason: str) -> AcceptanceModel:
        return replace(self, ignored=(*self.ignored, reason))

    def _faded(self, cell: _Cell, tally: Tally, age_s: float) -> Tally:
        return Tally().plus(tally, 2.0 ** (-max(0.0, age_s) / self.half_life_of(cell.route)))

    def _cells(
        self, is_method: Callable[[Kind], bool], route: str | None, greedy: bool | None
    ) -> list[_Cell]:
        return [
            cell
            for kind, by_route in self._index.items()
            if is_method(kind)
            for cell in (
                by_route.get(route, ()) if route is not None else chain(*by_route.values())
            )
            if greedy is None or cell.is_greedy in (None, greedy)
        ]

    def _sum(
        self, is_method: Callable[[Kind], bool], route: str | None, greedy: bool | None = None
    ) -> Tally:
        total = Tally()
        for cell in self._cells(is_method, route, greedy):
            total = total.plus(self.cells[cell])
        return total

    def _known(self, method: Method | Kind, route: str | None, greedy: bool | None = None) -> Tally:
        """Sum over a route or all; at a load level, with what the nearest ones stand in for."""
        if not isinstance(method, AtLoad):
            return self._sum(_matcher(method), route, greedy)
        by_load: dict[LoadLevel, Tally] = {}
        for cell in self._cells(_matcher(method.family), route, greedy):
            if isinstance(cell.kind, AtLoad):
                held = by_load.get(cell.kind.load, Tally())
                by_load[cell.kind.load] = held.plus(self.cells[cell])
        return tally_at(by_load, method.load)

    def _pooled(self, method: Method | Kind | None, greedy: bool | None) -> Tally:
        """Sum over all routes, of one method or of all; kept, since every route asks for it."""
        key = (method, greedy)
        if key not in self._pools:
            self._pools[key] = (
                self._sum(_any_draft, None, greedy)
                if method is None
                else self._known(method, None, greedy)
            )
        return self._pools[key]

    @cached_property
    def _pools(self) -> dict[tuple[Method | Kind | None, bool | None], Tally]:
        return {}

    @cached_property
    def _index(self) -> dict[Kind, dict[str, list[_Cell]]]:
        found: dict[Kind, dict[str, list[_Cell]]] = {}
        for cell in self.cells:
            found.setdefault(cell.kind, {}).setdefault(cell.route, []).append(cell)
        return found


def _window_tallies(observations: Iterable[Observation]) -> dict[_Cell, Tally]:
    """Sum a window's observations by cell, weighted by evidence and capped."""
    placed = [(_cell_of(observation), observation) for observation in observations]
    lengths = Counter(
        cell
        for cell, _ in {(cell, o.setting.k) for cell, o in placed}
        if cell.evidence is Evidence.COUNTERFACTUAL
    )
    tallies: dict[_Cell, Tally] = {}
    for cell, observation in placed:
        # Each length of a counterfactual scores the same tokens again.
        weight = EVIDENCE_WEIGHTS[cell.evidence] / max(1, lengths[cell])
        tallies[cell] = tallies.get(cell, Tally()).plus(tally_of(observation), weight)
    return {cell: Tally().plus(tally, _cap(tally)) for cell, tally in tallies.items()}


def _cell_of(observation: Observation) -> _Cell:
    return _Cell(
        route=observation.route,
        kind=kind_of(observation.setting, observation.load),
        evidence=observation.evidence,
        is_greedy=observation.is_greedy,
    )


def _cap(tally: Tally) -> float:
    return min(1.0, WINDOW_CAP_PASSES / tally.passes) if tally.passes else 1.0


def _matcher(method: Method | Kind) -> Callable[[Kind], bool]:
    """Return what tells the counts of a method or a Setting; adaptive ones belong to no method."""
    if isinstance(method, AtLoad):
        return lambda kind: kind == method
    if isinstance(method, Method):
        return lambda kind: isinstance(kind, Setting) and kind.method is method
    family = family_of(method)
    return lambda kind: (kind.family if isinstance(kind, AtLoad) else kind) == family


def _any_draft(kind: Kind) -> bool:
    return isinstance(kind, Setting) and kind.method is not Method.OFF


def _chained_mean(tally: Tally) -> Floats:
    """Estimate each position with the one before as first guess, so that a tail is carried on."""
    means, guess = [], FIRST_GUESS
    for attempts, accepts in zip(tally.attempts, tally.accepts, strict=True):
        guess = (accepts + GUESS_STRENGTH * guess) / (attempts + GUESS_STRENGTH)
        means.append(guess)
    return np.array(means)


def _shrunk(tally: Tally, prior: Floats, strength: Floats) -> Floats:
    return np.asarray((tally.accepts + strength * prior) / (tally.attempts + strength))


def _reach(own: Tally, pooled: Tally) -> Floats:
    """Shrink the chance that a draft goes on to each position to the method's; 1 if unknown."""
    prior = np.where(pooled.chances > 0, pooled.attempts / np.maximum(pooled.chances, 1e-9), 1.0)
    reach = (own.attempts + GUESS_STRENGTH * prior) / (own.chances + GUESS_STRENGTH)
    return np.clip(reach, 0.0, 1.0)


def _ratio(part: float, whole: float, otherwise: float) -> float:
    return part / whole if whole > 0 else otherwise
