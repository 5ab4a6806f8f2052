"""What each route saw at each load level, counted from the stored facts of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from collectors.records import LatencyHistogram, LoadLevel, Plan
from policy.types import (
    Evidence,
    Interval,
    LoadChange,
    LoadMix,
    Observation,
    Recommendation,
    RequestObservation,
)

ALL_ROUTES = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One route at one load level, every Setting it had added up.

    Attributes:
        route: route name; ``all`` for the sum over routes.
        load: load level of the steps; of requests, the one at their first token.
        requests: finished requests.
        drafted: draft tokens verified (D).
        accepted: draft tokens kept (A).
        passes: target passes seen by sequences (P).
        verify_passes: passes with a draft (V).
        tokens: tokens delivered (G).
        completion_tokens: tokens of the finished requests.
        decode_s: their time after the first token, in seconds.
        ttft: time to first token.
        tpot: time per output token.
        engine_tokens_per_s: tokens over busy time of the whole engine at this load level; None
            where it was not measured free of shadow rows.
        setting: label of the Setting in force at the end.
        recommended: label of the Setting recommended last; None without a recommendation.
        route_speed: predicted speed of the route with the recommended Setting over that in force.
        engine_total: predicted tokens per second of the engine, likewise.
    """

    route: str
    load: LoadLevel
    requests: int = 0
    drafted: int = 0
    accepted: int = 0
    passes: int = 0
    verify_passes: int = 0
    tokens: int = 0
    completion_tokens: int = 0
    decode_s: float = 0.0
    ttft: LatencyHistogram = field(default_factory=LatencyHistogram)
    tpot: LatencyHistogram = field(default_factory=LatencyHistogram)
    engine_tokens_per_s: float | None = None
    setting: str = "off"
    recommended: str | None = None
    route_speed: Interval | None = None
    engine_total: Interval | None = None

    @property
    def acceptance_rate(self) -> float | None:
        """A / D; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_length(self) -> float | None:
        """1 + A / V; None where no pass had a draft."""
        return 1 + self.accepted / self.verify_passes if self.verify_passes else None

    @property
    def tokens_per_pass(self) -> float | None:
        """(P + A) / P; None without passes."""
        return (self.passes + self.accepted) / self.passes if self.passes else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second of one request after its first token; None where not measured."""
        later = self.completion_tokens - self.requests
        return later / self.decode_s if later > 0 and self.decode_s > 0 else None

    def plus(self, other: Cell) -> Cell:
        """Return the sum of two cells under this one's name."""
        summed = ("requests", "drafted", "accepted", "passes", "verify_passes", "tokens")
        more = {name: getattr(self, name) + getattr(other, name) for name in summed}
        return replace(
            self,
            **more,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            decode_s=self.decode_s + other.decode_s,
            ttft=self.ttft.plus(other.ttft),
            tpot=self.tpot.plus(other.tpot),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form that ``spectuner demo --json`` documents."""
        return {
            "route": self.route,
            "load": self.load.label,
            "requests": self.requests,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "passes": self.passes,
            "tokens": self.tokens,
            "acceptance_rate": self.acceptance_rate,
            "acceptance_length": self.acceptance_length,
            "tokens_per_pass": self.tokens_per_pass,
            "setting": self.setting,
            "recommended": self.recommended,
            "route_speed": _figures(self.route_speed),
            "engine_total": _figures(self.engine_total),
        }


def _figures(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else interval.to_dict()


def cells_of(
    observations: Iterable[Observation],
    requests: Iterable[RequestObservation],
    mixes: Iterable[LoadMix],
    plan: Plan,
    recommendations: Sequence[Recommendation],
) -> tuple[Cell, ...]:
    """Return one cell per route and load level with live traffic, routes in order of name.

    Args:
        observations: counted steps; replayed ones are left out.
        requests: finished live requests.
        mixes: engine time by load level.
        plan: in force at the end.
        recommendations: the last one of each route.
    """
    speeds = {mix.load: mix.tokens / mix.busy_s for mix in mixes if mix.busy_s > 0 and mix.tokens}
    changes = {
        (said.route, change.load): change for said in recommendations for change in said.changes
    }
    counted = _summed(
        [*_from_steps(observations), *(_from_requests(seen) for seen in requests)],
    )
    return tuple(_completed(cell, plan, changes, speeds) for cell in counted)


def totals_of(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the sum over routes at each load level, lowest first."""
    totals = _summed([replace(cell, route=ALL_ROUTES) for cell in cells])
    speeds = {cell.load: cell.engine_tokens_per_s for cell in cells}
    return tuple(replace(total, engine_tokens_per_s=speeds[total.load]) for total in totals)


def _summed(parts: Iterable[Cell]) -> list[Cell]:
    by_place: dict[tuple[str, LoadLevel], Cell] = {}
    for part in parts:
        place = (part.route, part.load)
        by_place[place] = by_place[place].plus(part) if place in by_place else part
    return [by_place[place] for place in sorted(by_place)]


def _from_steps(observations: Iterable[Observation]) -> Iterable[Cell]:
    for seen in observations:
        if seen.evidence is Evidence.LIVE:
            yield Cell(
                route=seen.route,
                load=seen.load,
                drafted=seen.drafted,
                accepted=seen.accepted,
                passes=seen.passes,
                verify_passes=seen.verify_passes,
                tokens=seen.tokens,
            )


def _from_requests(seen: RequestObservation) -> Cell:
    return Cell(
        route=seen.route,
        load=seen.load,
        requests=seen.requests,
        completion_tokens=seen.completion_tokens,
        decode_s=seen.decode_s,
        ttft=seen.ttft,
        tpot=seen.tpot,
    )


def _completed(
    cell: Cell,
    plan: Plan,
    changes: Mapping[tuple[str, LoadLevel], LoadChange],
    speeds: Mapping[LoadLevel, float],
) -> Cell:
    change = changes.get((cell.route, cell.load))
    return replace(
        cell,
        engine_tokens_per_s=speeds.get(cell.load),
        setting=plan.setting_for(cell.route, cell.load).label,
        recommended=None if change is None else change.proposed.label,
        route_speed=None if change is None else change.route_speed,
        engine_total=None if change is None else change.engine_total,
    )
