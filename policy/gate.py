"""What paired replays show of one Setting on one route, and whether that opens the gate.

Pure: the service brings one sample a pair. A route is judged at the load level its pairs ran at
and at no other, and below a stated number of pairs there is no ratio at all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import stdtrit

from collectors.records import LoadLevel
from policy.errors import InvalidInput
from policy.statistics import TAIL
from policy.types import Interval

MIN_CLUSTERS = 8
"""Independent pairs below which no ratio is given: fewer often show far too small a spread."""

MAX_NEEDED = 10_000
"""Pairs beyond which a precision is out of reach; more are never asked for."""


class SpeedVerdict(StrEnum):
    """What the pairs of a route say of a Setting's speed."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no_difference"
    TOO_FEW = "too_few_pairs"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSample:
    """One request on both arms.

    Attributes:
        route: its route.
        load: the level of the requests that the replay had on the engine at once.
        log_ratio: natural logarithm of the time per output token, candidate over base.
        cluster: what pairs that are not independent share: a conversation, or a batch.
    """

    route: str
    load: LoadLevel
    log_ratio: float
    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpeed:
    """What the pairs of one route at one load level show.

    Attributes:
        route: the route.
        load: the level its pairs ran at.
        pairs: pairs that count.
        clusters: independent ones among them.
        precision: half width of the 90 % interval that was asked for, in log ratio.
        needed_pairs: pairs that this precision takes in all, as the spread so far tells.
        time_ratio: time per output token, candidate over base, with its 90 % interval; None with
            too few pairs.
        verdict: faster, slower, no difference, or too few pairs.
    """

    route: str
    load: LoadLevel
    pairs: int
    clusters: int
    precision: float
    needed_pairs: int
    time_ratio: Interval | None
    verdict: SpeedVerdict

    @property
    def missing_pairs(self) -> int:
        """Pairs still to run; 0 where there is a ratio."""
        return 0 if self.time_ratio is not None else max(1, self.needed_pairs - self.pairs)

    @property
    def speedup(self) -> Interval | None:
        """The candidate's speed over the base's; None with too few pairs."""
        if self.time_ratio is None:
            return None
        time = self.time_ratio
        return Interval(low=1 / time.high, mean=1 / time.mean, high=1 / time.low)

    @property
    def sentence(self) -> str:
        """The same in one sentence."""
        found, place = self.speedup, f"on {self.route} at load {self.load.label}"
        if found is None:
            return (
                f"too few pairs {place} ({self.pairs} of {self.needed_pairs} needed for "
                f"+-{self.precision:.0%})"
            )
        words = self.verdict.replace("_", " ")
        return (
            f"{words} {place}: {found.mean:.2f}x ({found.low:.2f} to {found.high:.2f}) over "
            f"{self.pairs} pairs"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """Whether evidence on one route lets a Setting through.

    Attributes:
        is_passing: outputs are the same and the Setting is not shown to be slower at the load
            level that was measured.
        outputs_pass: outputs are the same; all that counts at load levels that were not measured.
        reasons: sentences: the objections, else what was found.
    """

    is_passing: bool
    outputs_pass: bool
    reasons: tuple[str, ...]


def route_speeds(samples: Iterable[PairSample], *, precision: float) -> tuple[RouteSpeed, ...]:
    """Judge each route at each load level that has pairs, in order of route and load.

    Raises:
        InvalidInput: the precision is not above 0, or a ratio is no number.
    """
    by_place: dict[tuple[str, int], list[PairSample]] = defaultdict(list)
    for sample in samples:
        by_place[sample.route, sample.load.low].append(sample)
    return tuple(
        route_speed(route, found[0].load, found, precision=precision)
        for (route, _), found in sorted(by_place.items())
    )


def route_speed(
    route: str, load: LoadLevel, samples: Sequence[PairSample], *, precision: float
) -> RouteSpeed:
    """Judge the pairs of one route at one load level; there may be none.

    The interval is Student's t of the mean log ratio with one residual a cluster. It is given from
    ``MIN_CLUSTERS`` clusters on, once it is as narrow as asked or lies wholly on one side of 1.

    Raises:
        InvalidInput: the precision is not above 0, or a ratio is no number.
    """
    if not 0 < precision < math.inf:
        raise InvalidInput(f"precision must be above 0, got {precision}")
    mean, error, clusters = _clustered_mean(samples)
    half = _reach(clusters) * error if clusters > 1 else math.inf
    is_shown = clusters >= MIN_CLUSTERS and (half <= precision or abs(mean) > half)
    ratio = (
        Interval(low=math.exp(mean - half), mean=math.exp(mean), high=math.exp(mean + half))
        if is_shown
        else None
    )
    return RouteSpeed(
        route=route,
        load=load,
        pairs=len(samples),
        clusters=clusters,
        precision=precision,
        needed_pairs=_needed_pairs(len(samples), clusters, error, precision),
        time_ratio=ratio,
        verdict=_verdict(ratio),
    )


def is_narrow(speed: RouteSpeed) -> bool:
    """Return whether the interval is as narrow as asked, so that more pairs are a waste."""
    if speed.time_ratio is None:
        return False
    return math.log(speed.time_ratio.high / speed.time_ratio.mean) <= speed.precision


def gate_verdict(
    *, outputs_pass: bool, outputs_sentence: str, speed: RouteSpeed | None
) -> GateVerdict:
    """Judge a Setting by the evidence of one route.

    Args:
        outputs_pass: whether its greedy outputs were judged, and found no different.
        outputs_sentence: what the comparison of outputs says.
        speed: what the pairs of the route show; None where none was made.
    """
    objections = [] if outputs_pass else [outputs_sentence]
    if speed is None:
        objections.append("no pair of this route was replayed")
    elif speed.verdict in (SpeedVerdict.SLOWER, SpeedVerdict.TOO_FEW):
        objections.append(speed.sentence)
    found = (outputs_sentence, *(() if speed is None else (speed.sentence,)))
    return GateVerdict(
        is_passing=not objections,
        outputs_pass=outputs_pass,
        reasons=tuple(objections) or found,
    )


def unmeasured_loads(
    loads: Iterable[LoadLevel], measured: LoadLevel | None
) -> tuple[LoadLevel, ...]:
    """Return the load levels at which no pair ran, so that speed there rests on the model."""
    return tuple(load for load in loads if load != measured)


def conversations(prompts: Mapping[str, str]) -> dict[str, str]:
    """Name the conversation of each request: the first of those that continue one another.

    A request continues another where its prompt begins with the other's whole prompt and goes on.

    Args:
        prompts: the prompt by request id; requests of one route.
    """
    ordered = sorted(prompts.items(), key=lambda one: (one[1], one[0]))
    named: dict[str, str] = {}
    open_turns: list[tuple[str, str]] = []
    for request, prompt in ordered:
        while open_turns and not _continues(prompt, open_turns[-1][0]):
            open_turns.pop()
        name = open_turns[-1][1] if open_turns else request
        named[request] = name
        open_turns.append((prompt, name))
    return named


def _continues(prompt: str, earlier: str) -> bool:
    return bool(earlier) and len(prompt) > len(earlier) and prompt.startswith(earlier)


def _clustered_mean(samples: Sequence[PairSample]) -> tuple[float, float, int]:
    """Return mean log ratio, its standard error over clusters, and the number of clusters."""
    if not samples:
        return 0.0, math.inf, 0
    logs = np.asarray([sample.log_ratio for sample in samples], dtype=np.float64)
    if not np.isfinite(logs).all():
        raise InvalidInput("a log ratio must be a number; leave out pairs without time or tokens")
    mean = float(logs.mean())
    sums: dict[str, float] = defaultdict(float)
    for sample in samples:
        sums[sample.cluster] += sample.log_ratio - mean
    count = len(sums)
    if count < 2:
        return mean, math.inf, count
    squared = sum(value**2 for value in sums.values())
    return mean, math.sqrt(count / (count - 1) * squared) / len(samples), count


def _reach(clusters: int) -> float:
    return float(stdtrit(clusters - 1, 1 - TAIL))


def _needed_pairs(pairs: int, clusters: int, error: float, precision: float) -> int:
    """Return the pairs that the precision takes, if further ones spread and cluster as these do."""
    if clusters < 2:
        return MIN_CLUSTERS
    needed, spread = MIN_CLUSTERS, error * math.sqrt(clusters)
    while needed < MAX_NEEDED and _reach(needed) * spread / math.sqrt(needed) > precision:
        needed += 1 + needed // 50
    return min(MAX_NEEDED, math.ceil(needed * pairs / clusters))


def _verdict(ratio: Interval | None) -> SpeedVerdict:
    if ratio is None:
        return SpeedVerdict.TOO_FEW
    if ratio.high < 1:
        return SpeedVerdict.FASTER
    return SpeedVerdict.SLOWER if ratio.low > 1 else SpeedVerdict.NO_DIFFERENCE
