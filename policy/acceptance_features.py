"""Whether acceptance depends on temperature, context length or a grammar, and if so how much.

For each kind of Setting a logistic model is laid over the rates by route and position: it sees how
far a request's features lie from its route's mean. It is used only where it predicts windows that
it was not fitted on better than the rates alone, by more than chance; else the answer is that data
do not support it. Where it is used, it moves a route's acceptance to the requests of late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from scipy import special
from sklearn.linear_model import LogisticRegression

from collectors.records import Setting
from policy.statistics import TAIL, Bools, Floats, Ints
from policy.tally import family_of
from policy.types import FeatureCheck, Interval, Reliability

FEATURES = ("temperature", "context_octaves", "grammar")
MIN_WINDOWS = 12
MIN_REQUESTS = 100
NUM_FOLDS = 5
NUM_BINS = 8
MOST_SHIFT = 1.0
"""Odds are moved by a factor of e at most: further off nothing was seen."""

PRIOR_ATTEMPTS = 4.0
_Z = float(special.ndtri(1 - TAIL))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSample:
    """What one finished request showed at one Setting.

    Attributes:
        route: route name.
        setting: the Setting.
        end_s: when it ended, Unix seconds.
        temperature: sampling temperature; 0 is greedy.
        context_tokens: tokens of prompt and answer.
        has_grammar: True where the answer was held to a grammar.
        attempts: by draft position, passes that drafted it with all before it kept.
        accepts: by draft position, attempts that were kept.
    """

    route: str
    setting: Setting
    end_s: float
    temperature: float
    context_tokens: int
    has_grammar: bool
    attempts: tuple[int, ...]
    accepts: tuple[int, ...]


class _Model(Protocol):
    coef_: Floats

    def fit(self, features: Floats, outcomes: Ints, sample_weight: Floats, /) -> object: ...
    def predict_proba(self, features: Floats, /) -> Floats: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Table:
    """Samples as arrays: a row for each request and position drafted.

    Attributes:
        route: [N] number of the route.
        position: [N] draft position.
        window: [N] number of the window.
        request: [N] number of the request.
        features: [N, 3] as in FEATURES.
        attempts: [N].
        accepts: [N].
    """

    route: Ints
    position: Ints
    window: Ints
    request: Ints
    features: Floats
    attempts: Floats
    accepts: Floats

    def only(self, kept: Bools) -> _Table:
        """Return some of the rows."""
        return _Table(**{name: getattr(self, name)[kept] for name in self.__slots__})


def checked(
    samples: Iterable[RequestSample], *, window_s: float, now_s: float, recent_s: float
) -> dict[Setting, FeatureCheck]:
    """Check each kind of Setting, and say how far its routes moved of late.

    Args:
        samples: finished requests, in any order.
        window_s: length of the windows that are held out.
        now_s: the present, Unix seconds.
        recent_s: how far back requests count as of late, in seconds.
    """
    groups: dict[Setting, list[RequestSample]] = {}
    for sample in samples:
        if sample.attempts and sample.attempts[0]:
            groups.setdefault(family_of(sample.setting), []).append(sample)
    return {family: _check(group, window_s, now_s - recent_s) for family, group in groups.items()}


def _check(samples: Sequence[RequestSample], window_s: float, recent_from_s: float) -> FeatureCheck:
    routes = sorted({sample.route for sample in samples})
    table = _table(samples, routes, window_s)
    num_windows = len(np.unique(table.window))
    why = _too_little(len(samples), num_windows, table)
    if why is not None:
        return FeatureCheck(why_not=why, requests=len(samples), windows=num_windows)
    held_out = _held_out(table)
    gain = _gain(table, held_out)
    check = FeatureCheck(
        requests=len(samples),
        windows=num_windows,
        gain=gain,
        reliability=_reliability(table, held_out[1]),
    )
    if gain.low <= 0:
        return _replaced(check, why_not="it predicts held-out windows no better than the rates")
    base = _base(table, table)
    weights = _fitted(table, base).coef_[0, 1:]
    return _replaced(
        check,
        odds_by_feature=dict(zip(FEATURES, np.exp(weights).tolist(), strict=True)),
        shift_by_route=_shifts(samples, routes, weights, recent_from_s),
    )


def _replaced(check: FeatureCheck, **changes: object) -> FeatureCheck:
    plain = {name: getattr(check, name) for name in check.__slots__}
    return FeatureCheck(**{**plain, **changes})


def _too_little(num_requests: int, num_windows: int, table: _Table) -> str | None:
    if num_requests < MIN_REQUESTS:
        return f"{num_requests} requests are fewer than {MIN_REQUESTS}"
    if num_windows < MIN_WINDOWS:
        return f"{num_windows} windows are fewer than {MIN_WINDOWS}"
    if not np.ptp(table.features, axis=0).any():
        return "all requests are alike in temperature, context length and grammar"
    return None


def _table(samples: Sequence[RequestSample], routes: Sequence[str], window_s: float) -> _Table:
    number = {route: index for index, route in enumerate(routes)}
    rows = [
        (number[one.route], position, one.end_s // window_s, index, tried, kept)
        for index, one in enumerate(samples)
        for position, (tried, kept) in enumerate(zip(one.attempts, one.accepts, strict=True))
        if tried
    ]
    columns = np.array(rows, dtype=np.float64).T
    route, position, window, request = (column.astype(np.intp) for column in columns[:4])
    features = np.array([_features(sample) for sample in samples])
    return _Table(
        route=route,
        position=position,
        window=window,
        request=request,
        features=_centred(features, np.array([number[one.route] for one in samples]))[request],
        attempts=columns[4],
        accepts=columns[5],
    )


def _features(sample: RequestSample) -> tuple[float, float, float]:
    octaves = float(np.log2(max(sample.context_tokens, 1)))
    return sample.temperature, octaves, float(sample.has_grammar)


def _centred(features: Floats, route: Ints) -> Floats:
    """Return how far each request lies from the mean of its route; [N, 3]."""
    counts = np.bincount(route)[:, None]
    sums = np.stack([np.bincount(route, column) for column in features.T], axis=1)
    return np.asarray(features - (sums / counts)[route])


def _held_out(table: _Table) -> tuple[Floats, Floats]:
    """Return the chances by rates alone and by the model, each from the other windows; [N]."""
    base, model = np.empty(len(table.route)), np.empty(len(table.route))
    fold = np.unique(table.window, return_inverse=True)[1] % NUM_FOLDS
    for held in range(NUM_FOLDS):
        rest, part = table.only(fold != held), table.only(fold == held)
        base[fold == held] = _base(rest, part)
        fitted = _fitted(rest, _base(rest, rest))
        features = np.column_stack([special.logit(base[fold == held]), part.features])
        model[fold == held] = fitted.predict_proba(features)[:, 1]
    return base, model


def _base(seen: _Table, asked: _Table) -> Floats:
    """Return the rates by route and position, shrunk to those of the position; [N]."""
    deepest = int(max(seen.position.max(), asked.position.max())) + 1
    shape = (int(max(seen.route.max(), asked.route.max())) + 1, deepest)
    tried, kept = np.zeros(shape), np.zeros(shape)
    np.add.at(tried, (seen.route, seen.position), seen.attempts)
    np.add.at(kept, (seen.route, seen.position), seen.accepts)
    pooled = (kept.sum(axis=0) + 1) / (tried.sum(axis=0) + 2)
    rates = (kept + PRIOR_ATTEMPTS * pooled) / (tried + PRIOR_ATTEMPTS)
    return np.asarray(rates[asked.route, asked.position])


def _fitted(table: _Table, base: Floats) -> _Model:
    """Fit the odds of acceptance over the rates' own odds and the centred features."""
    features = np.column_stack([special.logit(base), table.features])
    outcomes = np.repeat([1, 0], len(features))
    weights = np.concatenate([table.accepts, table.attempts - table.accepts])
    model = LogisticRegression(fit_intercept=False)  # type: ignore[no-untyped-call]
    fitted = cast("_Model", model)
    fitted.fit(np.concatenate([features, features]), outcomes, weights)
    return fitted


def _gain(table: _Table, held_out: tuple[Floats, Floats]) -> Interval:
    """Return what the model saves of the log loss of an attempt, windows as independent parts."""
    saved = _loss(table, held_out[0]) - _loss(table, held_out[1])
    place = np.unique(table.window, return_inverse=True)[1]
    by_window, tried = np.bincount(place, saved), np.bincount(place, table.attempts)
    mean = float(by_window.sum() / tried.sum())
    error = float(np.sqrt(np.square(by_window - mean * tried).sum()) / tried.sum())
    return Interval(low=mean - _Z * error, mean=mean, high=mean + _Z * error)


def _loss(table: _Table, chances: Floats) -> Floats:
    missed = table.attempts - table.accepts
    return np.asarray(-special.xlogy(table.accepts, chances) - special.xlog1py(missed, -chances))


def _reliability(table: _Table, chances: Floats) -> tuple[Reliability, ...]:
    """Return predicted and counted acceptance of held-out attempts, by eighths of the attempts."""
    order = np.argsort(chances, kind="stable")
    before = np.cumsum(table.attempts[order]) - table.attempts[order]
    part = np.minimum(NUM_BINS * before / table.attempts.sum(), NUM_BINS - 1).astype(np.intp)
    found = []
    for number in np.unique(part):
        chosen = order[part == number]
        tried = float(table.attempts[chosen].sum())
        found.append(
            Reliability(
                predicted=float(chances[chosen] @ table.attempts[chosen] / tried),
                counted=float(table.accepts[chosen].sum() / tried),
                attempts=int(tried),
            )
        )
    return tuple(found)


def _shifts(
    samples: Sequence[RequestSample],
    routes: Sequence[str],
    weights: Floats,
    recent_from_s: float,
) -> Mapping[str, float]:
    """Return by how much the log odds of each route's late requests differ from those of all."""
    shifts = {}
    for route in routes:
        own = [sample for sample in samples if sample.route == route]
        late = [sample for sample in own if sample.end_s >= recent_from_s]
        if late:
            means = [np.mean([_features(one) for one in part], axis=0) for part in (late, own)]
            moved = float(weights @ (means[0] - means[1]))
            shifts[route] = float(np.clip(moved, -MOST_SHIFT, MOST_SHIFT))
    return shifts
