"""All that was learned from the windows, in one place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from collectors.records import LATENCY_BOUNDS_S, LatencyHistogram, LoadLevel, Method, Route, Setting
from policy.acceptance import AcceptanceModel, Posterior
from policy.adaptive import AtLoad, Kind, kind_of
from policy.cost import CostModel
from policy.outlook import Outlook
from policy.pace import PaceLog
from policy.smoother import REACH_OCTAVES, Reach
from policy.statistics import Floats, Ints
from policy.tally import family_of
from policy.types import LoadMix, RequestObservation, Window

LONE_ROWS = 1.5
"""Up to this many rows in the mean, a step counts as holding one row."""

LEAST_ROWS = 1e-6
MOST_ROWS = 1e9
HIGH_QUANTILE = 0.95
MOST_BUSY_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What a step at one load level holds, over all windows.

    Attributes:
        load: the load level.
        steps: discounted number of steps seen.
        rows_by_route: mean rows of each route in a step, above 0.
        context_tokens: mean KV entries held.
        prompt_s_per_token: engine time that reads prompts, by token delivered, in seconds.
    """

    load: LoadLevel
    steps: float
    rows_by_route: Mapping[str, float]
    context_tokens: float
    prompt_s_per_token: float = 0.0

    @property
    def rows(self) -> float:
        """Mean rows of a step."""
        return sum(self.rows_by_route.values())

    @property
    def is_lone(self) -> bool:
        """True where a step holds one row."""
        return self.rows <= LONE_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Venture:
    """How far a controller that watches every window may go beyond what was measured.

    Attributes:
        reach_octaves: how far a step may lie from a measured shape, in rows, positions, context.
        draft_reach: factor on how far a draft round may.
        first_draft_ratio: a drafted position over a plain step, before any was timed.
    """

    reach_octaves: Reach = (4.0, 1.2, 4.0)
    draft_reach: float = 4.0
    first_draft_ratio: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Knowledge:
    """What is believed of every route and arm.

    Attributes:
        acceptance: acceptance by position.
        cost: step and draft times.
        arms: the Settings to choose from; the first one is off.
        min_passes: passes of a draft position from which there is evidence.
        posteriors: belief by route and kind of Setting, as asked for so far.
        venture: how far to go beyond what was measured; None to stay within it.
        outlook: what passes yield in the long run; None to take the mean over all regimes.
        depths: evidenced draft positions by route and kind, as asked for so far.
        tables: step and draft times laid out for batches, as asked for so far.
        paces: the machine's pace up to now, where step times were learned up to earlier only.
    """

    acceptance: AcceptanceModel
    cost: CostModel
    arms: tuple[Setting, ...]
    min_passes: float
    posteriors: dict[tuple[str, Kind], Posterior]
    venture: Venture | None = None
    outlook: Outlook | None = None
    depths: dict[tuple[str, Kind], int] = field(default_factory=dict)
    tables: dict[tuple[object, ...], tuple[float, float, Floats] | Floats] = field(
        default_factory=dict
    )
    paces: PaceLog | None = None

    def posterior(self, route: str, kind: Kind) -> Posterior:
        """Return the belief about a kind of Setting on a route."""
        key = (route, kind if isinstance(kind, AtLoad) else family_of(kind))
        if key not in self.posteriors:
            self.posteriors[key] = self.acceptance.posterior(*key)
        return self.posteriors[key]

    def tokens_per_pass(self, route: str, kind: Kind) -> Floats:
        """Return the expected tokens of a pass for k = 0 to D; [D + 1]."""
        if self.outlook is not None:
            return self.outlook.mean_tokens(route, kind)
        return self.posterior(route, kind).tokens_per_pass()

    def depth(self, route: str, arm: Setting, load: LoadLevel | None = None) -> int:
        """Return to which draft position there is evidence for an arm's family on a route.

        Args:
            route: route name.
            arm: a Setting.
            load: the load level that counts for an adaptive one; None for all together.
        """
        key = (route, family_of(arm) if load is None else kind_of(arm, load))
        if key not in self.depths:
            self.depths[key] = self.acceptance.depth(*key, min_passes=self.min_passes)
        return self.depths[key]

    def has_evidence(self, route: str, arm: Setting, load: LoadLevel | None = None) -> bool:
        """True for off, and where the arm's draft length lies within the evidence."""
        return arm.method is Method.OFF or self.depth(route, arm, load) >= arm.k

    def may_choose(self, route: str, arm: Setting, load: LoadLevel | None = None) -> bool:
        """True where there is evidence, and for all arms where one may venture."""
        return self.venture is not None or self.has_evidence(route, arm, load)

    def step_table_s(self, rows: float, positions: Floats, context_tokens: float) -> Floats:
        """Return the seconds of target passes with these positions; NaN where unknown."""
        reach = REACH_OCTAVES if self.venture is None else self.venture.reach_octaves
        return self.cost.step_table_s(rows, positions, context_tokens, reach)

    def draft_table_s(self, method: Method, rows: Floats, depths: Ints, plain_s: float) -> Floats:
        """Return the seconds of draft rounds; [rows, depths], NaN where unknown.

        Args:
            method: drafting method.
            rows: sequences that draft.
            depths: longest draft asked for, in tokens.
            plain_s: seconds of a plain step of the batch.
        """
        if self.venture is None:
            return self.cost.draft_table_s(method, rows, depths)
        table = self.cost.draft_table_s(method, rows, depths, self.venture.draft_reach)
        guess = self.venture.first_draft_ratio * plain_s * depths
        return np.where(np.isnan(table), guess[None], table)

    def adaptive_depth(self, method: Method, load: LoadLevel) -> int | None:
        """Return the draft passes that adaptive Settings of a method take; None if unknown."""
        return self.cost.adaptive_rounds.depth(method, load)

    def drafted_depth(self, arm: Setting, load: LoadLevel) -> int:
        """Return the draft passes of an arm: of an adaptive one those it takes at a load level."""
        ends = self.adaptive_depth(arm.method, load) if arm.is_adaptive else None
        return arm.k if ends is None else min(arm.k, ends)

    def found_share(self, route: str, kind: Kind) -> float:
        """Return the mean draft length over k, passes without a draft included."""
        if self.outlook is not None and isinstance(kind, AtLoad):
            return self.outlook.mean_fill(route, kind)
        belief = self.posterior(route, kind)
        return belief.coverage * belief.fill


def merged_mixes(
    windows: Iterable[Window], *, now_s: float, half_life_s: float
) -> tuple[tuple[Mix, ...], tuple[str, ...]]:
    """Return what a step holds at each load level, lowest first, and the mixes that cannot be."""
    weights: dict[LoadLevel, float] = {}
    context: dict[LoadLevel, float] = {}
    rows: dict[LoadLevel, dict[str, float]] = {}
    prompts = _PromptTimes()
    ignored = []
    for window in windows:
        fade = 2.0 ** (-max(0.0, now_s - window.end_s) / half_life_s)
        prompts.add(window, fade)
        for mix in window.mixes:
            if not _is_sound(mix):
                ignored.append(f"mix at load {mix.load.label}: {mix.steps} steps of no real batch")
                continue
            weight = mix.steps * fade
            weights[mix.load] = weights.get(mix.load, 0.0) + weight
            context[mix.load] = context.get(mix.load, 0.0) + weight * mix.context_tokens
            held = rows.setdefault(mix.load, {})
            for route, count in mix.rows_by_route.items():
                held[route] = held.get(route, 0.0) + weight * count
    merged = tuple(
        Mix(
            load=load,
            steps=weight,
            rows_by_route={
                route: total / weight
                for route, total in sorted(rows[load].items())
                if total / weight > LEAST_ROWS
            },
            context_tokens=context[load] / weight,
            prompt_s_per_token=prompts.by_token(load),
        )
        for load, weight in sorted(weights.items())
        if weight > 0
    )
    return tuple(mix for mix in merged if mix.rows_by_route), tuple(ignored)


class _PromptTimes:
    """What the engine was busy for at each load level beyond the steps that only decode."""

    def __init__(self) -> None:
        self._all: dict[LoadLevel, Floats] = {}
        self._decoding: dict[LoadLevel, Floats] = {}

    def add(self, window: Window, weight: float) -> None:
        """Count a window."""
        for mix in window.mixes:
            _add_times(self._all, mix.load, mix.tokens, mix.busy_s, weight)
        for one in window.decode_sums:
            _add_times(self._decoding, one.load, one.tokens, one.busy_s, weight)

    def by_token(self, load: LoadLevel) -> float:
        """Return the seconds by token delivered that read prompts; 0 where that is unknown."""
        if load not in self._all or load not in self._decoding:
            return 0.0
        (tokens, busy_s), (decoded, decoding_s) = self._all[load], self._decoding[load]
        return max(0.0, float(busy_s / tokens - decoding_s / decoded))


def _add_times(
    sums: dict[LoadLevel, Floats], load: LoadLevel, tokens: int, busy_s: float, weight: float
) -> None:
    if tokens > 0 and 0 < busy_s < MOST_BUSY_S:
        sums[load] = sums.get(load, np.zeros(2)) + weight * np.array([tokens, busy_s])


def _is_sound(mix: LoadMix) -> bool:
    numbers = (mix.context_tokens, *mix.rows_by_route.values())
    return mix.steps >= 1 and all(0 <= value < MOST_ROWS for value in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How the finished requests of a route did at one load level.

    Attributes:
        ttft: time to first token.
        tpot: time per output token, one sample a request.
    """

    ttft: LatencyHistogram
    tpot: LatencyHistogram

    @property
    def high_ttft_s(self) -> float | None:
        """The 95th percentile of the time to first token; None without samples."""
        return self.ttft.quantile_s(HIGH_QUANTILE)

    def burn_ratio(self, route: Route) -> float | None:
        """Return the share of requests beyond the route's limits; None without limits or samples.

        The worse of the two limits counts. A bucket that holds the limit counts as kept.
        """
        shares = [
            share_over(histogram, limit_s)
            for histogram, limit_s in (
                (self.ttft, route.ttft_limit_s),
                (self.tpot, route.tpot_limit_s),
            )
            if limit_s is not None
        ]
        known = [share for share in shares if share is not None]
        return max(known) if known else None


def share_over(histogram: LatencyHistogram, limit_s: float) -> float | None:
    """Return the share of samples in buckets wholly above a limit; None without samples."""
    if not histogram.num_samples:
        return None
    lows = (0.0, *LATENCY_BOUNDS_S)
    over = sum(c for low, c in zip(lows, histogram.counts, strict=True) if low >= limit_s)
    return over / histogram.num_samples


def latencies(
    observations: Iterable[RequestObservation],
) -> Mapping[tuple[str, LoadLevel], Latency]:
    """Sum the latencies of requests by route and load level."""
    found: dict[tuple[str, LoadLevel], Latency] = {}
    for seen in observations:
        before = found.get((seen.route, seen.load))
        found[seen.route, seen.load] = Latency(
            ttft=before.ttft.plus(seen.ttft) if before else seen.ttft,
            tpot=before.tpot.plus(seen.tpot) if before else seen.tpot,
        )
    return found


def newest_s(windows: Sequence[Window]) -> float | None:
    """Return when the newest window ended; None without windows."""
    return max((w.end_s for w in windows if math.isfinite(w.end_s)), default=None)
