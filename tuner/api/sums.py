"""Adding up windows: sums of counts first, rates last. Pure functions over policy records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import zip_longest
from typing import TypeVar

from policy.types import (
    DraftObservation,
    LoadMix,
    Observation,
    RequestObservation,
    StepCost,
)

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def grouped(records: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return records by key, in the order in which keys were first seen."""
    groups: defaultdict[K, list[T]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return dict(groups)


def observations_summed(records: Sequence[Observation]) -> Observation:
    """Return one observation with the counts of all; its Setting is the first one's."""
    return reduce(_observations_added, records)


def requests_summed(records: Sequence[RequestObservation]) -> RequestObservation:
    """Return one observation of requests with the counts of all."""
    return reduce(_requests_added, records)


def step_costs_summed(records: Iterable[StepCost]) -> tuple[StepCost, ...]:
    """Return one cost a shape, in the order of shapes."""
    groups = grouped(records, lambda cost: (cost.rows, cost.positions, cost.context_tokens))
    return tuple(
        replace(
            costs[0],
            steps=sum(cost.steps for cost in costs),
            total_s=sum(cost.total_s for cost in costs),
            total_square_s2=sum(cost.total_square_s2 for cost in costs),
        )
        for _, costs in sorted(groups.items())
    )


def draft_costs_summed(records: Iterable[DraftObservation]) -> tuple[DraftObservation, ...]:
    """Return one cost a method and shape, in their order."""
    groups = grouped(records, lambda cost: (cost.method.value, cost.rows, cost.depth))
    return tuple(
        replace(
            costs[0],
            rounds=sum(cost.rounds for cost in costs),
            total_s=sum(cost.total_s for cost in costs),
        )
        for _, costs in sorted(groups.items())
    )


def mixes_summed(records: Iterable[LoadMix]) -> tuple[LoadMix, ...]:
    """Return one mix a load level, lowest first; means are weighted by steps."""
    groups = grouped(records, lambda mix: mix.load)
    return tuple(_mixes_added(mixes) for _, mixes in sorted(groups.items()))


def _observations_added(first: Observation, second: Observation) -> Observation:
    return replace(
        first,
        start_s=min(first.start_s, second.start_s),
        end_s=max(first.end_s, second.end_s),
        passes=first.passes + second.passes,
        verify_passes=first.verify_passes + second.verify_passes,
        drafted=first.drafted + second.drafted,
        accepted=first.accepted + second.accepted,
        tokens=first.tokens + second.tokens,
        attempts=_positions_added(first.attempts, second.attempts),
        accepts=_positions_added(first.accepts, second.accepts),
    )


def _positions_added(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(first, second, fillvalue=0))


def _requests_added(first: RequestObservation, second: RequestObservation) -> RequestObservation:
    return replace(
        first,
        requests=first.requests + second.requests,
        completion_tokens=first.completion_tokens + second.completion_tokens,
        decode_s=first.decode_s + second.decode_s,
        ttft=first.ttft.plus(second.ttft),
        chunk_gaps=first.chunk_gaps.plus(second.chunk_gaps),
        tpot=first.tpot.plus(second.tpot),
    )


def _mixes_added(mixes: Sequence[LoadMix]) -> LoadMix:
    steps = sum(mix.steps for mix in mixes)
    routes = sorted({route for mix in mixes for route in mix.rows_by_route})
    return LoadMix(
        load=mixes[0].load,
        steps=steps,
        rows_by_route={
            route: _mean((mix.rows_by_route.get(route, 0.0), mix.steps) for mix in mixes)
            for route in routes
        },
        context_tokens=_mean((mix.context_tokens, mix.steps) for mix in mixes),
        tokens=sum(mix.tokens for mix in mixes),
        busy_s=sum(mix.busy_s for mix in mixes),
    )


def _mean(weighted: Iterable[tuple[float, int]]) -> float:
    pairs = list(weighted)
    weight = sum(steps for _, steps in pairs)
    return sum(value * steps for value, steps in pairs) / weight if weight else 0.0
