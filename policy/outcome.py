"""What a recommendation brought, in the units it was predicted in, and whether it was missed.

A route's speed over off is measured in place where the engine runs a plain step now and then beside
its drafting steps: both see the same minute, so that neither traffic nor the machine's pace differs
(``paired``). Where it does not, the engine's total since is held against that before, at the same
load level (``before and after``): bookkeeping, no experiment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

from collectors.records import LoadLevel, Setting
from policy.materiality import changed
from policy.realised import Ran, Realised, RealisedLevel
from policy.statistics import TAIL
from policy.types import Evidence, Interval, LoadChange, Recommendation, Window

MIN_PAIRS = 20
"""Pairs of a drafting and a plain step from which a figure is given."""

MIN_PAIRED_WINDOWS = 3
"""Windows with pairs likewise: what scatters is windows, not steps."""


class Basis(StrEnum):
    """How an outcome was measured."""

    PAIRED = "paired steps"
    BEFORE_AND_AFTER = "before and after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One figure of a recommendation as predicted and as measured, at one load level.

    Attributes:
        load: the load level.
        setting: Setting in force.
        basis: how it was measured; paired steps give the route's speed over off, before and after
            gives the engine's total over that before.
        predicted: the ratio predicted, with its 90 % interval.
        realised: the ratio measured, with its own.
    """

    load: LoadLevel
    setting: Setting
    basis: Basis
    predicted: Interval
    realised: Interval

    @property
    def is_missed(self) -> bool:
        """True where the two intervals have nothing in common."""
        return self.realised.high < self.predicted.low or self.realised.low > self.predicted.high

    @property
    def figure(self) -> str:
        """Name of the figure."""
        return "over off" if self.basis is Basis.PAIRED else "engine total"

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"{self.figure} {_words(self.realised)} at load {self.load.label} by {self.basis}, "
            f"predicted {_words(self.predicted)}"
        )


def outcomes(said: Recommendation, brought: Realised, newest: Sequence[Ran]) -> tuple[Outcome, ...]:
    """Return what is measured of each load level that a recommendation changed.

    Args:
        said: the recommendation.
        brought: rates before and since.
        newest: the newest windows wholly under one plan, with their observations and pairs; those
            in which something else was in force are left out here.
    """
    since = [
        one.window for one in newest if one.window.start_s >= brought.since_s and _runs(said, one)
    ]
    levels = {level.load: level for level in brought.levels}
    return tuple(
        found
        for change in changed(said)
        if (found := _outcome(said.route, change, since, levels.get(change.load))) is not None
    )


def telling(found: Sequence[Outcome]) -> Outcome | None:
    """Return the outcome for a headline: one that was missed if any, paired before others."""
    return min(
        found,
        key=lambda one: (not one.is_missed, one.basis is not Basis.PAIRED, one.load),
        default=None,
    )


def paired_over_off(route: str, change: LoadChange, windows: Sequence[Window]) -> Interval | None:
    """Return a route's speed over off from paired steps; None with too few of them.

    It is the tokens of a pass of the route over the step time ratio of drafting to plain steps.

    Args:
        route: route name.
        change: its load level and the Setting in force.
        windows: windows in which that Setting was in force.
    """
    pairs = [one for window in windows for one in window.pairings if one.load == change.load]
    counted = [one for one in pairs if one.pairs]
    if len(counted) < MIN_PAIRED_WINDOWS or sum(one.pairs for one in counted) < MIN_PAIRS:
        return None
    passes, tokens = _passes(route, change, windows)
    if len(passes) < MIN_PAIRED_WINDOWS:
        return None
    ratio, ratio_error = _weighted_log(
        np.array([one.sum_log_ratio for one in counted]),
        np.array([float(one.pairs) for one in counted]),
    )
    mean, error = _log_ratio(tokens, passes)
    half = float(special.stdtrit(len(counted) - 1, 1 - TAIL)) * math.hypot(ratio_error, error)
    middle = mean - _log_with_prompts(ratio, change.load, windows)
    return Interval(
        low=math.exp(middle - half), mean=math.exp(middle), high=math.exp(middle + half)
    )


def _outcome(
    route: str, change: LoadChange, since: Sequence[Window], level: RealisedLevel | None
) -> Outcome | None:
    paired = paired_over_off(route, change, since)
    if paired is not None:
        return _of(change, Basis.PAIRED, change.over_off, paired)
    total = None if level is None else _engine_total(level)
    if total is None:
        return None
    return _of(change, Basis.BEFORE_AND_AFTER, change.engine_total, total)


def _of(change: LoadChange, basis: Basis, predicted: Interval, realised: Interval) -> Outcome:
    return Outcome(
        load=change.load,
        setting=change.proposed,
        basis=basis,
        predicted=predicted,
        realised=realised,
    )


def _engine_total(level: RealisedLevel) -> Interval | None:
    """Return the engine's rate since over that before; None where other routes changed as well."""
    now = None if level.realised is None else level.realised.tokens_per_s
    then = None if level.before is None else level.before.tokens_per_s
    if now is None or then is None or level.others or min(now.mean, then.mean) <= 0:
        return None
    spread = math.hypot(_half_share(now), _half_share(then))
    mean = now.mean / then.mean
    return Interval(low=mean * math.exp(-spread), mean=mean, high=mean * math.exp(spread))


def _half_share(rate: Interval) -> float:
    return (rate.high - rate.low) / 2 / rate.mean


def _runs(said: Recommendation, one: Ran) -> bool:
    return all(
        one.plan.setting_for(said.route, change.load) == change.proposed for change in said.changes
    )


def _passes(
    route: str, change: LoadChange, windows: Sequence[Window]
) -> tuple[list[float], list[float]]:
    """Return passes and their tokens of a route by window, at one load level and Setting."""
    parts = list(_parts(route, change, windows))
    return [passes for passes, _ in parts], [tokens for _, tokens in parts]


def _parts(
    route: str, change: LoadChange, windows: Sequence[Window]
) -> Iterator[tuple[float, float]]:
    place = (route, change.load, change.proposed, Evidence.LIVE)
    for window in windows:
        own = [
            one
            for one in window.observations
            if (one.route, one.load, one.setting, one.evidence) == place and one.passes
        ]
        if own:
            passes = sum(one.planned_passes for one in own)
            yield float(passes), float(passes + sum(one.accepted for one in own))


def _log_with_prompts(ratio: float, load: LoadLevel, windows: Sequence[Window]) -> float:
    """Return the log of a step time ratio with the reading of prompts in it, as predicted.

    Reading takes as long for each token delivered, whatever drafts; paired steps read none.

    Args:
        ratio: the log of the ratio of both steps without prompts.
        load: the load level.
        windows: windows in which the plan was in force.
    """
    mixes = [one for window in windows for one in window.mixes if one.load == load]
    sums = [one for window in windows for one in window.decode_sums if one.load == load]
    seen = [
        one
        for window in windows
        for one in window.observations
        if one.load == load and one.evidence is Evidence.LIVE
    ]
    tokens, decoded = sum(one.tokens for one in mixes), sum(one.tokens for one in sums)
    decoding_s, passes = sum(one.busy_s for one in sums), sum(one.passes for one in seen)
    if not (tokens and decoded and decoding_s > 0 and passes):
        return ratio
    by_token_s = decoding_s / decoded
    reading = max(0.0, sum(one.busy_s for one in mixes) / tokens / by_token_s - 1)
    more_tokens = 1 + sum(one.accepted for one in seen) / passes
    return math.log((1 + reading) / (math.exp(-ratio) + reading / more_tokens))


def _log_ratio(top: Sequence[float], bottom: Sequence[float]) -> tuple[float, float]:
    """Return the log of a ratio of sums and its standard error, each pair one draw."""
    above, below = np.array(top), np.array(bottom)
    ratio, count = float(above.sum() / below.sum()), len(above)
    left = above - ratio * below
    error = math.sqrt(count / (count - 1) * float((left**2).sum())) / float(above.sum())
    return math.log(ratio), error


def _weighted_log(sums: object, weights: object) -> tuple[float, float]:
    """Return the mean of logs over all pairs and its standard error over windows."""
    total, pairs = np.asarray(sums, dtype=float), np.asarray(weights, dtype=float)
    mean, count = float(total.sum() / pairs.sum()), len(total)
    left = total - mean * pairs
    return mean, math.sqrt(count / (count - 1) * float((left**2).sum())) / float(pairs.sum())


def _words(ratio: Interval) -> str:
    return f"{ratio.mean:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
