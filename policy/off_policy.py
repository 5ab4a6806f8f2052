"""What another plan would have been worth in windows that were logged under plans that ran.

A unit is one route at one load level in one window. Requests of a step share it, so a decision
holds for whole windows, and errors are clustered by window. Chances are those of the plans in force
averaged over the windows of a place (several loggers, arXiv:1703.06180): an arm that was set for
half of the windows had a chance of one half. Where an arm was never in force, nothing is estimated
from the log, and 0 is no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from scipy import special

from collectors.records import LoadLevel, Plan, Setting
from policy.errors import InvalidInput
from policy.statistics import TAIL, Floats
from policy.types import Interval

Place: TypeAlias = tuple[str, LoadLevel]

MIN_WINDOWS = 5
"""Windows with the wanted arm from which a place is estimated from the log."""

_ROUNDING = 1e-6


class Estimator(StrEnum):
    """How a plan's worth is estimated."""

    DIRECT = "direct"
    IPS = "ips"
    SNIPS = "snips"
    DR = "dr"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """How likely each arm was to be put in force at one place.

    Attributes:
        route: route name.
        load: the load level.
        arms: the arms possible and their chances, which sum to 1.
    """

    route: str
    load: LoadLevel
    arms: tuple[tuple[Setting, float], ...]

    @classmethod
    def certain(cls, place: Place, setting: Setting, arms: Sequence[Setting]) -> Chance:
        """Return the chances where one arm was sure to be chosen among others."""
        others = dict.fromkeys(arms, 0.0)
        return cls(route=place[0], load=place[1], arms=tuple({**others, setting: 1.0}.items()))

    def __post_init__(self) -> None:
        """Refuse what is no distribution."""
        chances = [chance for _, chance in self.arms]
        is_sound = all(0 <= chance <= 1 for chance in chances)
        if not is_sound or abs(sum(chances) - 1) > _ROUNDING:
            raise InvalidInput(f"chances of arms must be 0 to 1 and sum to 1, got {chances}")

    def of(self, setting: Setting) -> float:
        """Return the chance of one arm; 0 where it was not among them."""
        return dict(self.arms).get(setting, 0.0)


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
        logged_tokens_per_s: what these places really yielded.
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
        chance: mean chance of the Setting over them.
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
    cells = [
        _Cell.of(found, candidate.setting_for(*place), predicted.get(place))
        for place, found in sorted(groups.items())
    ]
    total = sum(float((cell.weights * cell.rewards).sum()) for cell in cells)
    made = [_estimate(estimator, cells, total) for estimator in Estimator]
    told = sum(float((c.weights * c.rewards).sum()) for c in cells if c.not_evaluable is None)
    return PlanValue(
        estimates=tuple(estimate for estimate in made if estimate is not None),
        places=tuple(cell.value() for cell in cells),
        windows=len({unit.window_s for unit in units}),
        evaluable_share=told / total if total > 0 else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cell:
    """The units of one place as arrays over windows, and the arm asked about."""

    place: Place
    setting: Setting
    windows_s: Floats
    weights: Floats
    rewards: Floats
    matches: Floats
    chance: float
    predicted: float | None
    logged_predicted: Floats

    @classmethod
    def of(cls, units: Sequence[Unit], setting: Setting, predicted: float | None) -> _Cell:
        weights = np.array([unit.busy_s for unit in units])
        chances = np.array([unit.chance.of(setting) for unit in units])
        unknown = math.nan
        return cls(
            place=units[0].place,
            setting=setting,
            windows_s=np.array([unit.window_s for unit in units]),
            weights=weights,
            rewards=np.array([unit.tokens_per_s for unit in units]),
            matches=np.array([float(unit.setting == setting) for unit in units]),
            chance=float((weights * chances).sum() / weights.sum()) if weights.sum() else 0.0,
            predicted=predicted,
            logged_predicted=np.array(
                [unknown if unit.predicted is None else unit.predicted for unit in units]
            ),
        )

    @property
    def is_logged(self) -> bool:
        return self.matches.sum() >= MIN_WINDOWS and self.chance > 0

    @property
    def ratios(self) -> Floats:
        """Importance of each unit; [N]."""
        return self.matches / self.chance

    @property
    def not_evaluable(self) -> str | None:
        if self.is_logged or self.predicted is not None:
            return None
        seen = int(self.matches.sum())
        return (
            f"{self.setting.label} was in force in {seen} windows, fewer than {MIN_WINDOWS}, and "
            "no evidence predicts it"
        )

    def scores(self, estimator: Estimator) -> Floats | None:
        """Return what each unit says of the arm's tokens per second; None where it cannot; [N].

        Their weighted mean is the estimate, their scatter its error.
        """
        if estimator is Estimator.DIRECT:
            return None if self.predicted is None else np.full(len(self.rewards), self.predicted)
        if not self.is_logged:
            return None
        if estimator is Estimator.IPS:
            return np.asarray(self.ratios * self.rewards)
        if estimator is Estimator.SNIPS:
            mass = self.weights * self.ratios
            mean = float((mass * self.rewards).sum() / mass.sum())
            scale = float(self.weights.sum() / mass.sum())
            return np.asarray(mean + scale * self.ratios * (self.rewards - mean))
        if self.predicted is None or np.isnan(self.logged_predicted).any():
            return None
        return np.asarray(self.predicted + self.ratios * (self.rewards - self.logged_predicted))

    def value(self) -> PlaceValue:
        scores = {estimator: self.scores(estimator) for estimator in Estimator}
        weight = self.weights.sum()
        return PlaceValue(
            route=self.place[0],
            load=self.place[1],
            setting=self.setting,
            windows=len(self.weights),
            matching_windows=int(self.matches.sum()),
            chance=self.chance,
            logged_tokens_per_s=float((self.weights * self.rewards).sum() / weight),
            by_estimator={
                estimator: float((self.weights * found).sum() / weight)
                for estimator, found in scores.items()
                if found is not None
            },
            not_evaluable=self.not_evaluable,
        )


def _estimate(estimator: Estimator, cells: Sequence[_Cell], total: float) -> Estimate | None:
    """Add up the places that an estimator can tell of; None where there is none."""
    known = [(cell, scores) for cell in cells if (scores := cell.scores(estimator)) is not None]
    if not known or total <= 0:
        return None
    windows = np.unique(np.concatenate([cell.windows_s for cell, _ in known]))
    made, logged = np.zeros(len(windows)), np.zeros(len(windows))
    busy: dict[tuple[float, LoadLevel], float] = {}
    for cell, scores in known:
        index = np.searchsorted(windows, cell.windows_s)
        np.add.at(made, index, cell.weights * scores)
        np.add.at(logged, index, cell.weights * cell.rewards)
        busy |= {
            (window, cell.place[1]): weight
            for window, weight in zip(cell.windows_s.tolist(), cell.weights.tolist(), strict=True)
        }
    seconds = np.zeros(len(windows))
    for (window, _), weight in busy.items():
        seconds[np.searchsorted(windows, window)] += weight
    is_model = estimator is Estimator.DIRECT
    return Estimate(
        estimator=estimator,
        tokens_per_s=_ratio(made, seconds, exact=is_model),
        logged_tokens_per_s=float(logged.sum() / seconds.sum()),
        gain=_ratio(made - logged, logged),
        coverage=float(logged.sum() / total),
        effective_windows=_effective(known, windows, is_model),
    )


def _ratio(top: Floats, bottom: Floats, *, exact: bool = False) -> Interval:
    """Return a ratio of sums over windows with its 90 % interval, each window one draw."""
    value, count = float(top.sum() / bottom.sum()), len(top)
    if exact:
        return Interval(low=value, mean=value, high=value)
    if count < 2:
        return Interval(low=-math.inf, mean=value, high=math.inf)
    left = top - value * bottom
    error = math.sqrt(count / (count - 1) * float((left**2).sum())) / abs(float(bottom.sum()))
    half = float(special.stdtrit(count - 1, 1 - TAIL)) * error
    return Interval(low=value - half, mean=value, high=value + half)


def _effective(known: Sequence[tuple[_Cell, Floats]], windows: Floats, is_model: bool) -> float:
    if is_model:
        return float(len(windows))
    mass = np.zeros(len(windows))
    for cell, _ in known:
        np.add.at(mass, np.searchsorted(windows, cell.windows_s), cell.weights * cell.ratios)
    return float(mass.sum() ** 2 / (mass**2).sum())
