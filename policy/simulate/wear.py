"""One route whose acceptance stays as it is, or slides: what drift detection is measured on.

Requests differ from each other, and those of one time from those of another: each has an ease of
its own, and an ease that all share wanders slowly. That is what makes counts scatter far more than
coins, and what a detector must not take for a change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from collectors.records import Method, Setting, load_level_of
from policy.statistics import Floats, Ints
from policy.types import Observation, Window

SETTING = Setting(method=Method.EAGLE, k=4)
SHAPE = (0.78, 0.74, 0.72, 0.70)
"""Acceptance by position before it is moved to the length wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wear:
    """A route over time.

    Attributes:
        requests_per_window: mean number of requests that end in a window.
        tokens: mean length of an answer.
        length: acceptance length at first, bonus token included.
        slid_length: the same after the slide.
        slide_from: request from which it slides; None for never.
        slide_requests: requests that the slide takes.
        ease_deviation: standard deviation of a request's ease, in logits of acceptance.
        shared_deviation: the same of the ease that requests of one time share.
        shared_windows: windows in which that forgets itself.
        window_s: length of a window, in seconds.
    """

    requests_per_window: float = 6.0
    tokens: float = 40.0
    length: float = 3.07
    slid_length: float = 2.80
    slide_from: int | None = None
    slide_requests: int = 1000
    ease_deviation: float = 0.6
    shared_deviation: float = 0.05
    shared_windows: float = 33.0
    window_s: float = 60.0

    def slid_ratio(self, request: Floats) -> Floats:
        """Return how far requests, by number, are down the slide; 0 to 1."""
        if self.slide_from is None:
            return np.zeros_like(request)
        return np.clip((request - self.slide_from) / self.slide_requests, 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WornWindow:
    """A window and how many requests had ended by its end."""

    window: Window
    requests: int


def worn_windows(
    wear: Wear, num_windows: int, generator: np.random.Generator, route: str = "chat"
) -> Iterator[WornWindow]:
    """Draw windows one by one, as an engine would have counted them."""
    first, last = _moved(wear, wear.length), _moved(wear, wear.slid_length)
    keep = math.exp(-1 / wear.shared_windows)
    shared, requests = 0.0, 0
    for number in range(num_windows):
        fresh = math.sqrt(1 - keep * keep) * float(generator.standard_normal())
        shared = keep * shared + wear.shared_deviation * fresh
        count = int(generator.poisson(wear.requests_per_window))
        down = wear.slid_ratio(requests + np.arange(count, dtype=float))
        ease = shared + wear.ease_deviation * generator.standard_normal(count)
        passes = 1 + generator.poisson(wear.tokens / wear.length, count)
        requests += count
        tries, hits = _outcomes(passes, first + (last - first) * down[:, None], ease, generator)
        start_s = number * wear.window_s
        seen = _observation(route, start_s, start_s + wear.window_s, passes, tries, hits)
        yield WornWindow(
            window=Window(start_s=seen.start_s, end_s=seen.end_s, observations=(seen,)),
            requests=requests,
        )


def _outcomes(
    passes: Ints, chances: Floats, ease: Floats, generator: np.random.Generator
) -> tuple[list[int], list[int]]:
    tries, hits, left = [], [], passes
    for position in range(len(SHAPE)):
        kept = generator.binomial(left, expit(chances[:, position] + ease))
        tries.append(int(left.sum()))
        hits.append(int(kept.sum()))
        left = kept
    return tries, hits


def _observation(
    route: str, start_s: float, end_s: float, passes: Ints, tries: list[int], hits: list[int]
) -> Observation:
    total, accepted = int(passes.sum()), sum(hits)
    return Observation(
        route=route,
        setting=SETTING,
        load=load_level_of(2),
        start_s=start_s,
        end_s=end_s,
        passes=total,
        verify_passes=total,
        drafted=total * SETTING.k,
        accepted=accepted,
        tokens=total + accepted,
        attempts=tuple(tries),
        accepts=tuple(hits),
        is_greedy=True,
    )


def _moved(wear: Wear, length: float) -> Floats:
    """Return logits of acceptance by position at which requests yield a length in the mean; [K]."""
    shape = np.asarray(logit(np.array(SHAPE)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    weights = weights / weights.sum()
    spread = math.hypot(wear.ease_deviation, wear.shared_deviation)
    low, high = -6.0, 6.0
    for _ in range(60):
        middle = (low + high) / 2
        chances = expit(shape + middle + spread * nodes[:, None])
        mean = float(weights @ (1 + np.cumprod(chances, axis=1).sum(axis=1)))
        low, high = (middle, high) if mean < length else (low, middle)
    return shape + low
