"""Policy records to JSON values and back, for the columns that hold whole records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from collectors.errors import InvalidRecord
from collectors.records import LatencyHistogram, Method, Setting, load_level_named
from collectors.records.parsing import (
    JsonObject,
    as_object,
    integer,
    items,
    member,
    number,
    text,
)
from policy.pool_advice import PoolAdvice
from policy.types import (
    AcceptanceCurve,
    Advice,
    DraftObservation,
    Evidence,
    Interval,
    JointEffect,
    LoadChange,
    LoadMix,
    Recommendation,
    RequestObservation,
    StepCost,
    Trial,
    TurningPoint,
)
from tuner.store.coding_features import feature_check_from_dict, feature_check_to_dict

T = TypeVar("T")


def listed(data: JsonObject, key: str, read: Callable[[JsonObject], T]) -> tuple[T, ...]:
    """Read a list of objects."""
    return tuple(read(as_object(value, key)) for value in items(data, key))


def integers(values: Sequence[object]) -> tuple[int, ...]:
    """Read a list of integers."""
    return tuple(integer({"value": value}, "value") for value in values)


def texts(values: Sequence[object]) -> tuple[str, ...]:
    """Read a list of strings."""
    return tuple(text({"value": value}, "value") for value in values)


def setting_in(data: JsonObject, key: str) -> Setting:
    """Read a Setting."""
    return Setting.from_dict(as_object(data.get(key), key))


def interval_to_list(interval: Interval) -> list[float]:
    """Write [low, mean, high]."""
    return [interval.low, interval.mean, interval.high]


def interval_from_list(value: object) -> Interval:
    """Read [low, mean, high]."""
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise InvalidRecord(f"an interval must be [low, mean, high], got {value!r}")
    named = dict(zip(("low", "mean", "high"), value, strict=True))
    return Interval(
        low=number(named, "low"), mean=number(named, "mean"), high=number(named, "high")
    )


def recommendation_to_dict(recommendation: Recommendation) -> dict[str, object]:
    """Write a Recommendation."""
    level = recommendation.break_even_load
    return {
        "route": recommendation.route,
        "advice": recommendation.advice,
        "changes": [change_to_dict(change) for change in recommendation.changes],
        "curves": [_curve_to_dict(curve) for curve in recommendation.curves],
        "cost_rows": [list(row) for row in recommendation.cost_rows],
        "break_even_load": None if level is None else level.label,
        "reasons": list(recommendation.reasons),
        "would_change_mind": list(recommendation.would_change_mind),
        "predicted_goodput": dict(recommendation.predicted_goodput),
        "turning_points": [_turning_to_dict(point) for point in recommendation.turning_points],
        "trials": [_trial_to_dict(trial) for trial in recommendation.trials],
        "features": {
            method: feature_check_to_dict(check)
            for method, check in recommendation.features.items()
        },
        "pools": [_pool_to_dict(advice) for advice in recommendation.pools],
    }


def recommendation_from_dict(data: JsonObject) -> Recommendation:
    """Read a Recommendation."""
    level = data.get("break_even_load")
    goodput = as_object(data.get("predicted_goodput", {}), "predicted_goodput")
    return Recommendation(
        route=text(data, "route"),
        advice=member(Advice, text(data, "advice"), "advice"),
        changes=_changes_from(data),
        curves=listed(data, "curves", _curve_from_dict),
        cost_rows=tuple(_cost_row(row) for row in items(data, "cost_rows")),
        break_even_load=None if level is None else load_level_named(str(level)),
        reasons=texts(items(data, "reasons")),
        would_change_mind=texts(items(data, "would_change_mind")),
        predicted_goodput={label: number(goodput, label) for label in goodput},
        turning_points=listed(data, "turning_points", _turning_from_dict),
        trials=listed(data, "trials", _trial_from_dict),
        features={
            member(Method, method, "method"): feature_check_from_dict(as_object(check, method))
            for method, check in as_object(data.get("features", {}), "features").items()
        },
        pools=listed(data, "pools", _pool_from_dict),
    )


def _changes_from(data: JsonObject) -> tuple[LoadChange, ...]:
    """Read the changes; those of before the two figures were told apart are left out.

    Their figures had another unit, a route's share of what the engine gained; the sentences stay.
    """
    found = [as_object(value, "changes") for value in items(data, "changes")]
    return tuple(change_from_dict(one) for one in found if "route_speed" in one)


def change_to_dict(change: LoadChange) -> dict[str, object]:
    """Write a LoadChange."""
    runner_up = change.runner_up
    return {
        "load": change.load.label,
        "current": change.current.to_dict(),
        "proposed": change.proposed.to_dict(),
        "tokens_per_pass": interval_to_list(change.tokens_per_pass),
        "current_tokens_per_pass": change.current_tokens_per_pass,
        "step_ratio": interval_to_list(change.step_ratio),
        "token_share": change.token_share,
        "route_speed": interval_to_list(change.route_speed),
        "engine_total": interval_to_list(change.engine_total),
        "over_off": interval_to_list(change.over_off),
        "runner_up": None if runner_up is None else [runner_up[0].to_dict(), runner_up[1]],
        "reason": change.reason,
        "runner_up_reason": change.runner_up_reason,
        "lost_s": change.lost_s,
        "goodput": interval_to_list(change.goodput),
        "joint": None if change.joint is None else _joint_to_dict(change.joint),
        "needs_set": change.needs_set,
    }


def change_from_dict(data: JsonObject) -> LoadChange:
    """Read a LoadChange."""
    why, joint = data.get("runner_up_reason"), data.get("joint")
    return LoadChange(
        load=load_level_named(text(data, "load")),
        current=setting_in(data, "current"),
        proposed=setting_in(data, "proposed"),
        tokens_per_pass=interval_from_list(data.get("tokens_per_pass")),
        current_tokens_per_pass=number(data, "current_tokens_per_pass"),
        step_ratio=interval_from_list(data.get("step_ratio")),
        token_share=number(data, "token_share"),
        route_speed=interval_from_list(data.get("route_speed")),
        engine_total=interval_from_list(data.get("engine_total")),
        over_off=interval_from_list(data.get("over_off")),
        runner_up=_runner_up(data.get("runner_up")),
        reason=text(data, "reason"),
        runner_up_reason=None if why is None else str(why),
        lost_s=number(data, "lost_s", 0.0),
        goodput=interval_from_list(data.get("goodput")),
        joint=None if joint is None else _joint_from_dict(as_object(joint, "joint")),
        needs_set=bool(data.get("needs_set", False)),
    )


def _joint_to_dict(joint: JointEffect) -> dict[str, object]:
    return {
        "routes": list(joint.routes),
        "route_speed": interval_to_list(joint.route_speed),
        "engine_total": interval_to_list(joint.engine_total),
    }


def _joint_from_dict(data: JsonObject) -> JointEffect:
    return JointEffect(
        routes=texts(items(data, "routes")),
        route_speed=interval_from_list(data.get("route_speed")),
        engine_total=interval_from_list(data.get("engine_total")),
    )


def _runner_up(value: object) -> tuple[Setting, float] | None:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    named = {"setting": value[0], "engine_total": value[1]}
    return setting_in(named, "setting"), number(named, "engine_total")


def _curve_to_dict(curve: AcceptanceCurve) -> dict[str, object]:
    return {
        "method": curve.method,
        "conditional": [interval_to_list(rate) for rate in curve.conditional],
        "attempts": list(curve.attempts),
        "coverage": curve.coverage,
        "evidence": list(curve.evidence),
        "shares": dict(curve.shares),
    }


def _curve_from_dict(data: JsonObject) -> AcceptanceCurve:
    shares = as_object(data.get("shares", {}), "shares")
    return AcceptanceCurve(
        method=member(Method, text(data, "method"), "method"),
        conditional=tuple(interval_from_list(rate) for rate in items(data, "conditional")),
        attempts=tuple(number({"attempts": n}, "attempts") for n in items(data, "attempts")),
        coverage=number(data, "coverage"),
        evidence=tuple(
            member(Evidence, kind, "evidence") for kind in texts(items(data, "evidence"))
        ),
        shares={member(Evidence, kind, "evidence"): number(shares, kind) for kind in shares},
    )


def _turning_to_dict(point: TurningPoint) -> dict[str, object]:
    plain = {name: getattr(point, name) for name in point.__slots__}
    return {**plain, "load": point.load.label, "setting": point.setting.to_dict()}


def _turning_from_dict(data: JsonObject) -> TurningPoint:
    needed = data.get("needed_acceptance")
    return TurningPoint(
        load=load_level_named(text(data, "load")),
        setting=setting_in(data, "setting"),
        tokens_per_pass=number(data, "tokens_per_pass"),
        needed_tokens_per_pass=number(data, "needed_tokens_per_pass"),
        acceptance=number(data, "acceptance"),
        needed_acceptance=None if needed is None else number(data, "needed_acceptance"),
    )


def _pool_to_dict(advice: PoolAdvice) -> dict[str, object]:
    return {
        "load": advice.load.label,
        "leaves": list(advice.leaves),
        "settings": {route: setting.to_dict() for route, setting in advice.settings.items()},
        "gain": interval_to_list(advice.gain),
        "reason": advice.reason,
    }


def _pool_from_dict(data: JsonObject) -> PoolAdvice:
    settings = as_object(data.get("settings"), "settings")
    return PoolAdvice(
        load=load_level_named(text(data, "load")),
        leaves=texts(items(data, "leaves")),
        settings={route: setting_in(settings, route) for route in settings},
        gain=interval_from_list(data.get("gain")),
        reason=text(data, "reason"),
    )


def _trial_to_dict(trial: Trial) -> dict[str, object]:
    plain = {name: getattr(trial, name) for name in trial.__slots__}
    return {**plain, "load": trial.load.label, "setting": trial.setting.to_dict()}


def _trial_from_dict(data: JsonObject) -> Trial:
    most_gain = data.get("most_gain")
    return Trial(
        setting=setting_in(data, "setting"),
        by=member(Evidence, text(data, "by"), "evidence"),
        load=load_level_named(text(data, "load")),
        most_gain=None if most_gain is None else number(data, "most_gain"),
        most_token_share=number(data, "most_token_share"),
        win_share=number(data, "win_share") if "win_share" in data else 0.0,
    )


def _cost_row(value: object) -> tuple[int, int, float]:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise InvalidRecord(f"a cost row must be [rows, positions, seconds], got {value!r}")
    named = dict(zip(("rows", "positions", "seconds"), value, strict=True))
    return integer(named, "rows"), integer(named, "positions"), number(named, "seconds")


def requests_to_dict(seen: RequestObservation) -> dict[str, object]:
    """Write a RequestObservation."""
    return {
        "route": seen.route,
        "setting": seen.setting.to_dict(),
        "load": seen.load.label,
        "requests": seen.requests,
        "completion_tokens": seen.completion_tokens,
        "decode_s": seen.decode_s,
        "ttft": seen.ttft.to_dict(),
        "chunk_gaps": seen.chunk_gaps.to_dict(),
        "tpot": seen.tpot.to_dict(),
    }


def requests_from_dict(data: JsonObject) -> RequestObservation:
    """Read a RequestObservation."""
    return RequestObservation(
        route=text(data, "route"),
        setting=setting_in(data, "setting"),
        load=load_level_named(text(data, "load")),
        requests=integer(data, "requests"),
        completion_tokens=integer(data, "completion_tokens"),
        decode_s=number(data, "decode_s"),
        ttft=_histogram(data, "ttft"),
        chunk_gaps=_histogram(data, "chunk_gaps"),
        tpot=_histogram(data, "tpot"),
    )


def _histogram(data: JsonObject, key: str) -> LatencyHistogram:
    return LatencyHistogram.from_dict(as_object(data.get(key), key))


def step_cost_to_dict(cost: StepCost) -> dict[str, object]:
    """Write a StepCost."""
    return {name: getattr(cost, name) for name in cost.__slots__}


def step_cost_from_dict(data: JsonObject) -> StepCost:
    """Read a StepCost."""
    return StepCost(
        rows=integer(data, "rows"),
        positions=integer(data, "positions"),
        context_tokens=integer(data, "context_tokens"),
        steps=integer(data, "steps"),
        total_s=number(data, "total_s"),
        total_square_s2=number(data, "total_square_s2"),
        blocks=integer(data, "blocks", 0),
    )


def draft_cost_to_dict(cost: DraftObservation) -> dict[str, object]:
    """Write a DraftObservation."""
    return {name: getattr(cost, name) for name in cost.__slots__}


def draft_cost_from_dict(data: JsonObject) -> DraftObservation:
    """Read a DraftObservation."""
    return DraftObservation(
        method=member(Method, text(data, "method"), "method"),
        rows=integer(data, "rows"),
        depth=integer(data, "depth"),
        rounds=integer(data, "rounds"),
        total_s=number(data, "total_s"),
    )


def mix_to_dict(mix: LoadMix) -> dict[str, object]:
    """Write a LoadMix."""
    plain = {name: getattr(mix, name) for name in mix.__slots__}
    return {**plain, "load": mix.load.label, "rows_by_route": dict(mix.rows_by_route)}


def mix_from_dict(data: JsonObject) -> LoadMix:
    """Read a LoadMix."""
    rows = as_object(data.get("rows_by_route", {}), "rows_by_route")
    return LoadMix(
        load=load_level_named(text(data, "load")),
        steps=integer(data, "steps"),
        rows_by_route={route: number(rows, route) for route in rows},
        context_tokens=number(data, "context_tokens"),
        tokens=integer(data, "tokens"),
        busy_s=number(data, "busy_s"),
    )
