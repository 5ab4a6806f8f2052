"""What another plan would have been worth in windows that were logged under plans that ran.

A unit is one route at one load level in one window. Requests of a step share it, so a decision
holds for whole windows, and errors are clustered by window. The log tells of an arm only in windows
in which it had a chance, known from the draw; chances averaged over windows would lay what traffic
did at its door. Where an arm was sure to run it is compared with itself, so windows in which any
place had a choice are looked at alone, if there are such. Elsewhere nothing is estimated from the
log, and 0 is no estimate; the model's own prediction goes beyond.

How long an engine was busy depends on what ran: what has to be served is served in less time by a
faster arm. So IPS and DR count every window alike, and only SNIPS, which sets tokens of an arm's
windows against their own seconds, counts them by busy seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from collectors.records import LoadLevel, Plan, Setting
from policy.lottery import Chance, Place
from policy.statistics import Bools, Floats, ratio_interval
from policy.types import Interval

MIN_WINDOWS = 5
"""Windows with the wanted arm from which a place is estimated from the log."""


class Estimator(StrEnum):
    """How a plan's worth is estimated."""

    DIRECT = "direct"
    IPS = "ips"
    SNIPS = "snips"
    DR = "dr"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One route at one load level in one window.

    Attributes:
        window_s: end of the window, Unix seconds.
        setting: the Setting in force.
        chance: how likely each arm was.
        tokens_per_s: tokens of the route by busy second of the engine at this load level.
        busy_s: busy seconds of the engine at this load level.
        predicted: tokens per second that the model predicts for what was in force; None where it
            cannot.
    """

    window_s: float
    setting: Setting
    chance: Chance
    tokens_per_s: float
    busy_s: float
    predicted: float | None = None

    @property
    def place(self) -> Place:
        """Route and load level."""
        return self.chance.route, self.chance.load


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One estimate of a plan's worth.

    Attributes:
        estimator: how it was made.
        tokens_per_s: of the places covered, by busy second, with the 90 % interval; a direct
            estimate has none, as it draws on no window of its own.
        logged_tokens_per_s: what these places really yielded, windows counted alike or by busy
            seconds as the estimator does.
        gain: over what they really yielded, 0.1 being 10 %.
        coverage: share of all tokens logged that these places hold.
        effective_windows: windows that as many equal weights would stand for.
    """

    estimator: Estimator
    tokens_per_s: Interval
    logged_tokens_per_s: float
    gain: Interval
    coverage: float
    effective_windows: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceValue:
    """What is known of one place under the plan asked about.

    Attributes:
        route: route name.
        load: the load level.
        setting: Setting of the plan asked about.
        windows: windows of the place.
        matching_windows: those in which that Setting was in force.
        chance: mean chance of the Setting over them, by busy seconds.
        logged_tokens_per_s: what the place yielded.
        by_estimator: tokens per second; estimators that cannot tell are left out.
        not_evaluable: why nothing can be told; None where something can.
    """

    route: str
    load: LoadLevel
    setting: Setting
    windows: int
    matching_windows: int
    chance: float
    logged_tokens_per_s: float
    by_estimator: Mapping[Estimator, float]
    not_evaluable: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanValue:
    """What a plan is estimated to be worth.

    Attributes:
        estimates: one an estimator that covers any place.
        places: by route, then load level.
        windows: windows looked at.
        evaluable_share: share of all tokens logged in places where anything can be told.
    """

    estimates: tuple[Estimate, ...]
    places: tuple[PlaceValue, ...]
    windows: int
    evaluable_share: float


def evaluate(units: Sequence[Unit], candidate: Plan, predicted: Mapping[Place, float]) -> PlanValue:
    """Estimate what a plan would have yielded in logged windows.

    Inverse propensity scoring (IPS), its self-normalised form (SNIPS), the doubly robust estimate
    (DR, arXiv:1103.4601), and the model's own prediction (direct).

    Args:
        units: what was logged.
        candidate: the plan asked about.
        predicted: tokens per second by place that the model predicts for it.
    """
    groups: dict[Place, list[Unit]] = {}
    for unit in units:
        groups.setdefault(unit.place, []).append(unit)
    usual_s = _usual_seconds(units)
    cells = _with_choices(
        [
            _Cell.of(found, candidate.setting_for(*place), predicted.get(place), usual_s[place[1]])
            for place, found in sorted(groups.items())
        ]
    )
    total = sum(cell.tokens for cell in cells)
    made = [_estimate(estimator, cells, total) for estimator in Estimator]
    return PlanValue(
        estimates=tuple(estimate for estimate in made if estimate is not None),
        places=tuple(cell.value() for cell in cells),
        windows=len({unit.window_s for unit in units}),
        evaluable_share=sum(cell.told_tokens for cell in cells) / total if total > 0 else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cell:
    """The units of one place as arrays over windows, and the arm asked about.

    ``weights`` are the seconds as an estimator counts them, ``busy_s`` the real ones.
    """

    place: Place
    setting: Setting
    windows_s: Floats
    busy_s: Floats
    weights: Floats
    usual_s: float
    rewards: Floats
    matches: Floats
    chances: Floats
    tells: Bools
    predicted: float | None
    logged_predicted: Floats

    @classmethod
    def of(
        cls, units: Sequence[Unit], setting: Setting, predicted: float | None, usual_s: float
    ) -> _Cell:
        busy_s = np.array([unit.busy_s for unit in units])
        unknown, chances = math.nan, np.array([unit.chance.of(setting) for unit in units])
        return cls(
            place=units[0].place,
            setting=setting,
            windows_s=np.array([unit.window_s for unit in units]),
            busy_s=busy_s,
            weights=busy_s,
            usual_s=usual_s,
            rewards=np.array([unit.tokens_per_s for unit in units]),
            matches=np.array([float(unit.setting == setting) for unit in units]),
            chances=chances,
            tells=chances > 0,
            predicted=predicted,
            logged_predicted=np.array(
                [unknown if unit.predicted is None else unit.predicted for unit in units]
            ),
        )

    @property
    def tokens(self) -> float:
        return float((self.busy_s * self.rewards).sum())

    @property
    def told_tokens(self) -> float:
        """Tokens of the windows of which anything can be told."""
        if self.predicted is not None:
            return self.tokens
        return self.telling.tokens if self.is_logged else 0.0

    @property
    def telling(self) -> _Cell:
        """The windows in which the log tells of the arm."""
        kept = self.tells
        return replace(
            self,
            windows_s=self.windows_s[kept],
            busy_s=self.busy_s[kept],
            weights=self.weights[kept],
            rewards=self.rewards[kept],
            matches=self.matches[kept],
            chances=self.chances[kept],
            tells=kept[kept],
            logged_predicted=self.logged_predicted[kept],
        )

    @property
    def num_matching(self) -> int:
        """Windows that tell of the arm and ran it."""
        return int(self.matches[self.tells].sum())

    @property
    def is_logged(self) -> bool:
        is_sure = self.tells.any() and (self.chances[self.tells] == 1).all()
        return bool(is_sure or self.num_matching >= MIN_WINDOWS)

    @property
    def ratios(self) -> Floats:
        """Importance of each unit; [N]."""
        return self.matches / self.chances

    @property
    def not_evaluable(self) -> str | None:
        if self.is_logged or self.predicted is not None:
            return None
        return (
            f"{self.setting.label} was in force in {self.num_matching} windows, fewer than "
            f"{MIN_WINDOWS}, and no evidence predicts it"
        )

    def covered_by(self, estimator: Estimator) -> _Cell | None:
        """Return the windows of which an estimator can tell; None where it cannot tell of any."""
        if estimator is Estimator.DIRECT:
            return None if self.predicted is None else self
        if not self.is_logged:
            return None
        cell = self.telling
        if estimator is not Estimator.SNIPS:
            cell = replace(cell, weights=np.full(len(cell.weights), self.usual_s))
        is_foretold = self.predicted is not None and not np.isnan(cell.logged_predicted).any()
        return cell if is_foretold or estimator is not Estimator.DR else None

    def scores(self, estimator: Estimator) -> Floats:
        """Return what each unit covered says of the arm's tokens per second; [N].

        Their weighted mean is the estimate, their scatter its error.
        """
        predicted = math.nan if self.predicted is None else self.predicted
        if estimator is Estimator.DIRECT:
            return np.full(len(self.rewards), predicted)
        if estimator is Estimator.IPS:
            return np.asarray(self.ratios * self.rewards)
        if estimator is Estimator.SNIPS:
            mass = self.weights * self.ratios
            mean = float((mass * self.rewards).sum() / mass.sum())
            scale = float(self.weights.sum() / mass.sum())
            return np.asarray(mean + scale * self.ratios * (self.rewards - mean))
        return np.asarray(predicted + self.ratios * (self.rewards - self.logged_predicted))

    def value(self) -> PlaceValue:
        covered = {one: cell for one in Estimator if (cell := self.covered_by(one)) is not None}
        weight = self.busy_s.sum()
        return PlaceValue(
            route=self.place[0],
            load=self.place[1],
            setting=self.setting,
            windows=len(self.busy_s),
            matching_windows=int(self.matches.sum()),
            chance=float((self.busy_s * self.chances).sum() / weight) if weight else 0.0,
            logged_tokens_per_s=float(self.tokens / weight),
            by_estimator={
                one: float((cell.weights * cell.scores(one)).sum() / cell.weights.sum())
                for one, cell in covered.items()
            },
            not_evaluable=self.not_evaluable,
        )


def _usual_seconds(units: Sequence[Unit]) -> Mapping[LoadLevel, float]:
    """Return for how long the engine was busy at each load level in a window, in the mean."""
    busy_s = {(unit.chance.load, unit.window_s): unit.busy_s for unit in units}
    by_load: dict[LoadLevel, list[float]] = {}
    for (load, _), seconds in busy_s.items():
        by_load.setdefault(load, []).append(seconds)
    return {load: float(np.mean(seconds)) for load, seconds in by_load.items()}


def _with_choices(cells: Sequence[_Cell]) -> list[_Cell]:
    """Leave what the log tells of to windows in which any place had a choice, if there are such."""
    had = [cell.windows_s[(cell.chances > 0) & (cell.chances < 1)] for cell in cells]
    choices = np.concatenate(had) if had else np.array([])
    if not choices.size:
        return list(cells)
    return [replace(cell, tells=cell.tells & np.isin(cell.windows_s, choices)) for cell in cells]


def _estimate(estimator: Estimator, cells: Sequence[_Cell], total: float) -> Estimate | None:
    """Add up the places that an estimator can tell of; None where there is none."""
    covered = [part for cell in cells if (part := cell.covered_by(estimator)) is not None]
    if not covered or total <= 0:
        return None
    windows = np.unique(np.concatenate([cell.windows_s for cell in covered]))
    made, logged = np.zeros(len(windows)), np.zeros(len(windows))
    busy: dict[tuple[float, LoadLevel], float] = {}
    for cell in covered:
        index = np.searchsorted(windows, cell.windows_s)
        np.add.at(made, index, cell.weights * cell.scores(estimator))
        np.add.at(logged, index, cell.weights * cell.rewards)
        busy |= {
            (window, cell.place[1]): weight
            for window, weight in zip(cell.windows_s.tolist(), cell.weights.tolist(), strict=True)
        }
    seconds = np.zeros(len(windows))
    for (window, _), weight in busy.items():
        seconds[np.searchsorted(windows, window)] += weight
    is_model = estimator is Estimator.DIRECT
    rate = ratio_interval(made, seconds)
    return Estimate(
        estimator=estimator,
        tokens_per_s=Interval.certain(rate.mean) if is_model else rate,
        logged_tokens_per_s=float(logged.sum() / seconds.sum()),
        gain=ratio_interval(made - logged, logged),
        coverage=sum(cell.tokens for cell in covered) / total,
        effective_windows=_effective(covered, windows, is_model),
    )


def _effective(covered: Sequence[_Cell], windows: Floats, is_model: bool) -> float:
    if is_model:
        return float(len(windows))
    mass = np.zeros(len(windows))
    for cell in covered:
        np.add.at(mass, np.searchsorted(windows, cell.windows_s), cell.weights * cell.ratios)
    return float(mass.sum() ** 2 / (mass**2).sum())
