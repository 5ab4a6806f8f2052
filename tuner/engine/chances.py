"""How often a drafted token is kept, by how sure the draft was before it was drawn.

A draft's own probability is a poor chance: heads are too sure of late positions, and a sampled
token of probability 0.1 is kept nine times in ten where draft and target agree. So confidences
are sorted into bins and counted. A route leans on its method's count, that on the confidence.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from collectors.records import Method

_EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_MIDDLES = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.925, 0.97, 0.995)
_LATE = 3
"""Draft positions from this one on, counted from 0, share their counts."""
_PRIOR = 4.0
_ROUTE_PRIOR = 16.0
_MOST = 256.0
"""Attempts of a bin that are remembered; at so many, all count half."""


class Kind(NamedTuple):
    """What shares a calibration: a method, and whether the row takes likeliest tokens or draws."""

    method: Method
    is_greedy: bool


@dataclass(slots=True)
class _Bin:
    judged: float = 0.0
    attempts: float = 0.0
    accepts: float = 0.0

    def add(self, is_accepted: bool) -> None:
        self.attempts += 1
        self.accepts += is_accepted
        if self.attempts >= _MOST:
            self.attempts, self.accepts = self.attempts / 2, self.accepts / 2

    def rate(self, prior: float, weight: float) -> float:
        return (self.accepts + weight * prior) / (self.attempts + weight)


class Chances:
    """Counts of attempts and accepts of all routes and methods, by draft position and confidence.

    An attempt is a token whose predecessors in the draft were all kept, so that draft lengths do
    not bias the counts.
    """

    def __init__(self) -> None:
        self._bins: dict[tuple[str, Kind, int], list[_Bin]] = {}

    def judge(self, route: str, kind: Kind, position: int, confidence: float) -> float:
        """Return the chance that the token at a draft position is kept, and count the question."""
        place, bins = _place(confidence), self._of("", kind, position)
        bins[place].judged += 1
        if bins[place].judged >= _MOST:
            for each in bins:
                each.judged /= 2
        return self._chance(route, kind, position, place)

    def spread(self, route: str, kind: Kind, position: int) -> list[tuple[float, float]]:
        """Return (share, chance) of what the draft will turn out to be sure of at a position."""
        judged = [each.judged for each in self._of("", kind, position)]
        total = sum(judged)
        if not total:
            return [(1.0, 1.0)]
        return [
            (count / total, self._chance(route, kind, position, place))
            for place, count in enumerate(judged)
            if count
        ]

    def surpluses(self, route: str, kind: Kind, longest: int, price: float) -> Iterator[float]:
        """Yield the tokens that each position of a draft is expected to gain beyond its price.

        Args:
            route: its route.
            kind: its method and way of choosing tokens.
            longest: tokens that it may have.
            price: tokens that a position must be worth.
        """
        going, survival = 1.0, 1.0
        for position in range(longest):
            paying = [
                (share, survival * chance)
                for share, chance in self.spread(route, kind, position)
                if survival * chance >= price
            ]
            share = sum(share for share, _ in paying)
            kept = sum(share * chance for share, chance in paying)
            yield going * (kept - share * price)
            if not share:
                return
            going, survival = going * share, kept / share

    def learn(self, route: str, kind: Kind, confidences: Sequence[float], accepted: int) -> None:
        """Take in what became of a draft.

        Args:
            route: its route; empty where it counts for its method alone.
            kind: its method and way of choosing tokens.
            confidences: of its tokens.
            accepted: how many were kept.
        """
        for position, confidence in enumerate(confidences[: accepted + 1]):
            place = _place(confidence)
            for name in {route, ""}:
                self._of(name, kind, position)[place].add(position < accepted)

    def _chance(self, route: str, kind: Kind, position: int, place: int) -> float:
        known = self._of("", kind, position)[place].rate(_MIDDLES[place], _PRIOR)
        if not route:
            return known
        return self._of(route, kind, position)[place].rate(known, _ROUTE_PRIOR)

    def _of(self, route: str, kind: Kind, position: int) -> list[_Bin]:
        key = (route, kind, min(position, _LATE))
        if key not in self._bins:
            self._bins[key] = [_Bin() for _ in _MIDDLES]
        return self._bins[key]


def _place(confidence: float) -> int:
    return bisect.bisect_right(_EDGES, confidence)
