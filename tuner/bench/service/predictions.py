"""What recommendations promised a route, beside what the real engine then brought."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from collectors.records import OFF, LoadLevel, Plan, Setting, load_level_of
from policy.types import Interval, LoadChange
from tuner.bench.service.blocks import Block, Decoding, Level
from tuner.bench.service.conditions import Condition
from tuner.bench.service.intervals import Reading, interval_of, pooled_scatter
from tuner.bench.service.options import OFF_ARM, REVIEWED
from tuner.store.recommendations import State, StoredRecommendation

Place = tuple[str, LoadLevel]

_POSSIBLE = 1.05
"""A speed over off above tokens per pass by more than this factor is no rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What an approved or open recommendation says of the plan that is in force.

    Attributes:
        route: of the recommendation.
        load: load level.
        setting: in force there.
        tokens_per_pass: predicted.
        predicted: the route's speed over speculation off.
    """

    route: str
    load: LoadLevel
    setting: Setting
    tokens_per_pass: float
    predicted: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A promise and its measured result.

    Attributes:
        condition: under which both were made.
        promise: what was predicted.
        realised: the route's tokens per second per request while decoding, reviewed over off.
    """

    condition: Condition
    promise: Promise
    realised: Interval

    @property
    def is_inside(self) -> bool:
        """True where the result lies in the predicted interval, widened by its own error.

        On each side the two half-widths are added in squares, on logarithms: a 90 % interval of
        the difference of two independent figures.
        """
        predicted, realised = self.promise.predicted, self.realised
        miss = math.log(realised.mean / predicted.mean)
        own = math.log(realised.high / realised.mean)
        end = predicted.high if miss > 0 else predicted.low
        if end <= 0:
            return True
        return abs(miss) <= math.hypot(math.log(end / predicted.mean), own)

    @property
    def error(self) -> float:
        """How far the prediction lay from the result, as a share of the result."""
        return abs(self.promise.predicted.mean / self.realised.mean - 1)

    def to_dict(self) -> dict[str, object]:
        """Return the figures; docs/json.md documents the keys."""
        promise = self.promise
        return {
            "condition": self.condition.value,
            "route": promise.route,
            "load": promise.load.label,
            "setting": promise.setting.label,
            "tokens_per_pass": promise.tokens_per_pass,
            "predicted": promise.predicted.to_dict(),
            "realised": self.realised.to_dict(),
            "is_inside": self.is_inside,
        }


def promises_of(listed: Sequence[StoredRecommendation], plan: Plan) -> tuple[Promise, ...]:
    """Return what is promised of a plan, one for each route and load level that speculates.

    Args:
        listed: recommendations, newest first; a promoted one is taken before a pending one.
        plan: in force.
    """
    found: dict[Place, Promise] = {}
    for state in (State.PROMOTED, State.PENDING):
        for stored in listed:
            for change in stored.said.changes if stored.state is state else ():
                place = (stored.route, change.load)
                runs = plan.setting_for(*place)
                if place not in found and change.proposed == runs != OFF:
                    found[place] = _promise(stored.route, change)
    return tuple(found[place] for place in sorted(found))


def outcomes_of(
    condition: Condition, promises: Sequence[Promise], blocks: Iterable[Block]
) -> tuple[Outcome, ...]:
    """Compare promises with the measured speed of the same routes at the same load levels.

    Args:
        condition: under which the blocks ran.
        promises: of the plan of the arm `reviewed`.
        blocks: of one condition; those in which another plan was in force are left out.
    """
    valid = {
        (block.stretch.arm, block.stretch.round, block.stretch.level): block
        for block in blocks
        if block.is_valid and not block.stretch.level.is_surge
    }
    readings = {(one.route, one.load): _readings(one, valid) for one in promises}
    scatter = pooled_scatter(readings.values())
    if scatter is None:
        return ()
    return tuple(
        Outcome(
            condition=condition,
            promise=one,
            realised=interval_of(readings[one.route, one.load], scatter),
        )
        for one in promises
        if readings[one.route, one.load]
    )


def coverage(outcomes: Sequence[Outcome]) -> float | None:
    """Return the share of predictions that held; None without any."""
    return sum(one.is_inside for one in outcomes) / len(outcomes) if outcomes else None


def median_error(outcomes: Sequence[Outcome]) -> float | None:
    """Return the median relative error of predictions; None without any."""
    return median(one.error for one in outcomes) if outcomes else None


def num_impossible(listed: Iterable[StoredRecommendation]) -> int:
    """Count predictions, approved or not, that lie above what tokens per pass allow."""
    return sum(
        change.over_off.mean > _POSSIBLE * change.tokens_per_pass.mean
        for stored in listed
        for change in stored.said.changes
        if change.proposed != OFF
    )


def _promise(route: str, change: LoadChange) -> Promise:
    return Promise(
        route=route,
        load=change.load,
        setting=change.proposed,
        tokens_per_pass=change.tokens_per_pass.mean,
        predicted=change.over_off,
    )


def _readings(promise: Promise, blocks: Mapping[tuple[str, int, Level], Block]) -> list[Reading]:
    """Return the rounds in which the route was seen at its load level under both plans."""
    found = []
    for (arm, turn, level), block in blocks.items():
        other = blocks.get((OFF_ARM, turn, level))
        if arm != REVIEWED or other is None or load_level_of(level.concurrency) != promise.load:
            continue
        reading = _reading(*(_decoding(one, promise) for one in (block, other)))
        if reading is not None:
            found.append(reading)
    return found


def _decoding(block: Block, promise: Promise) -> Decoding:
    return block.decoding.get((promise.route, promise.load), Decoding())


def _reading(reviewed: Decoding, off: Decoding) -> Reading | None:
    """Return one round's ratio; its variance falls with the passes on both sides."""
    if reviewed.tokens_per_s is None or off.tokens_per_s is None:
        return None
    return Reading(
        log=math.log(reviewed.tokens_per_s / off.tokens_per_s),
        weight=1 / (1 / reviewed.passes + 1 / off.passes),
    )
