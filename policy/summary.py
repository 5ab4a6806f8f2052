"""Verdicts of one route at its load levels, folded into a Recommendation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collectors.records import LoadLevel, Method, Setting
from policy.adaptive import kind_of
from policy.explain import turning_point
from policy.explore import best_trials
from policy.knowledge import Knowledge
from policy.pool_advice import PoolAdvice
from policy.types import (
    AcceptanceCurve,
    Advice,
    Evidence,
    FeatureCheck,
    LoadChange,
    Recommendation,
    Trial,
    TurningPoint,
)
from policy.wording import (
    adaptive_reason,
    break_even_reason,
    change_reason,
    evidence_reason,
    flip_wish,
    lost_reason,
    no_data_reason,
    replay_wish,
    rise_wish,
    set_reason,
    stay_reason,
)

LEAST_LIVE = 0.5
"""Share of live evidence below which a recommendation says what else it rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was decided for one route at one load level.

    Attributes:
        route: route name.
        load: the load level.
        why_not: why there is no answer; None where there is one.
        missing: Settings without evidence on the route.
        change: the answer; None where there is none.
        refusal: the first Setting refused by the guardrails, and why.
        best_arm: Setting with the highest speedup, off left out; None without evidence of any.
        best_over_off: the engine's goodput with it over that with the route off.
        best_tokens: its tokens per pass.
        needed_tokens: tokens per pass at which it equals off.
        goodput: predicted tokens per second with all changes; of the engine where routes share
            steps, of the route where each step holds one row.
        payback_s: seconds in which the change earns back what it loses; None where it loses
            nothing.
        trials: what is worth trying.
        pool: advice to move the route to a pool without speculation; None where there is none.
    """

    route: str
    load: LoadLevel
    why_not: str | None = None
    missing: tuple[Setting, ...] = ()
    change: LoadChange | None = None
    refusal: tuple[Setting, str] | None = None
    best_arm: Setting | None = None
    best_over_off: float | None = None
    best_tokens: float | None = None
    needed_tokens: float | None = None
    goodput: float = 0.0
    payback_s: float | None = None
    trials: tuple[Trial, ...] = ()
    pool: PoolAdvice | None = None

    @property
    def is_change(self) -> bool:
        """True where something else than what is in force is proposed."""
        return self.change is not None and self.change.proposed != self.change.current


def no_answer(route: str, why: str) -> Recommendation:
    """Return the recommendation of a route about which nothing can be said."""
    return Recommendation(
        route=route,
        advice=Advice.NOT_ENOUGH_DATA,
        changes=(),
        reasons=(f"Not enough data: {why}; what is in force stays.",),
        would_change_mind=("Live traffic or a replay of captured requests on this route.",),
    )


def recommendation(
    route: str,
    verdicts: Sequence[Verdict],
    knowledge: Knowledge,
    ignored: Sequence[str],
    features: Mapping[Setting, FeatureCheck],
    pool_note: str | None = None,
) -> Recommendation:
    """Fold the verdicts of one route.

    Args:
        route: route name.
        verdicts: one a load level at which the route was seen.
        knowledge: curves and costs that stand behind them.
        ignored: observations that were left out, and why.
        features: by kind of Setting, whether acceptance depends on what requests are like.
        pool_note: why a pool without speculation cannot be judged; None where it can, or there is
            none.
    """
    if not verdicts:
        return no_answer(route, "no step held a row of this route")
    ordered = sorted(verdicts, key=lambda verdict: verdict.load)
    answered = [verdict for verdict in ordered if verdict.change is not None]
    changes = tuple(_change(verdict) for verdict in answered)
    curves = _curves(route, knowledge)
    return Recommendation(
        route=route,
        advice=_advice(ordered),
        changes=changes,
        curves=curves,
        cost_rows=_cost_rows(changes, knowledge),
        break_even_load=_break_even(answered),
        reasons=(
            *_reasons(ordered, ignored),
            *_adaptive(route, changes, knowledge),
            *_unserved(changes, curves),
            *_calibrated(changes, knowledge),
            *([] if pool_note is None else [pool_note]),
        ),
        would_change_mind=tuple(_wishes(route, ordered)),
        predicted_goodput={verdict.load.label: verdict.goodput for verdict in answered},
        turning_points=tuple(_turning_points(route, answered, knowledge)),
        features=_features(route, features),
        pools=tuple(verdict.pool for verdict in ordered if verdict.pool is not None),
        trials=best_trials(trial for verdict in ordered for trial in verdict.trials),
    )


def _advice(verdicts: Sequence[Verdict]) -> Advice:
    if any(verdict.is_change for verdict in verdicts):
        return Advice.CHANGE
    if any(verdict.change is not None for verdict in verdicts):
        return Advice.NO_CHANGE
    return Advice.NOT_ENOUGH_DATA


def _change(verdict: Verdict) -> LoadChange:
    assert verdict.change is not None
    return replace(verdict.change, reason=_change_sentence(verdict, verdict.change))


def _change_sentence(verdict: Verdict, change: LoadChange) -> str:
    if verdict.is_change:
        return change_reason(verdict.load, change)
    return stay_reason(verdict.load, change.current, change.runner_up, change.runner_up_reason)


def _break_even(verdicts: Sequence[Verdict]) -> LoadLevel | None:
    paying = [v.load for v in verdicts if v.change is not None and _pays(v.change)]
    return max(paying, default=None)


def _pays(change: LoadChange) -> bool:
    return change.proposed.method is not Method.OFF and change.over_off.mean > 1


def _losing(verdicts: Sequence[Verdict]) -> list[tuple[LoadLevel, float]]:
    """Return the load levels above the break-even where all lose, with the best's speedup."""
    paying = _break_even(verdicts)
    return [
        (verdict.load, max(0.0, verdict.best_over_off))
        for verdict in verdicts
        if verdict.best_over_off is not None
        and verdict.best_over_off < 1
        and (paying is None or verdict.load > paying)
    ]


def _reasons(verdicts: Sequence[Verdict], ignored: Sequence[str]) -> list[str]:
    answered = [verdict for verdict in verdicts if verdict.change is not None]
    losing = _losing(answered)
    sentences = [break_even_reason(_break_even(answered), losing)] if losing else []
    by_weight = sorted(answered, key=lambda verdict: not verdict.is_change)
    sentences += [_change(verdict).reason for verdict in by_weight]
    sentences += [verdict.pool.reason for verdict in answered if verdict.pool is not None]
    sentences += [
        lost_reason(verdict.load, verdict.change, verdict.payback_s)
        for verdict in answered
        if verdict.change is not None and verdict.payback_s is not None
    ]
    sentences += [
        set_reason(verdict.load, verdict.change.joint)
        for verdict in answered
        if verdict.change is not None and verdict.change.needs_set and verdict.change.joint
    ]
    sentences += [no_data_reason(v.load, v.why_not) for v in verdicts if v.why_not is not None]
    if ignored:
        sentences.append(f"{len(ignored)} impossible observations were left out: {ignored[0]}.")
    return sentences


def _unserved(changes: Sequence[LoadChange], curves: Sequence[AcceptanceCurve]) -> Iterator[str]:
    """Say of each method newly proposed what it rests on, where little of that is live."""
    proposed = {
        change.proposed.method
        for change in changes
        if change.proposed != change.current and not change.proposed.is_adaptive
    }
    for curve in curves:
        if curve.method in proposed and curve.shares.get(Evidence.LIVE, 0.0) < LEAST_LIVE:
            yield evidence_reason(curve)


def _adaptive(route: str, changes: Sequence[LoadChange], knowledge: Knowledge) -> Iterator[str]:
    """Say of each adaptive Setting in force or proposed what it does at each load level."""
    arms = (arm for change in changes for arm in (change.proposed, change.current))
    for arm in dict.fromkeys(arm for arm in arms if arm.is_adaptive):
        loads = [c.load for c in changes if knowledge.has_evidence(route, arm, c.load)]
        drafted = [
            (load, arm.k * knowledge.found_share(route, kind_of(arm, load))) for load in loads
        ]
        if drafted:
            yield adaptive_reason(arm, drafted)


def _calibrated(changes: Sequence[LoadChange], knowledge: Knowledge) -> Iterator[str]:
    """Say where step times come from a calibration, since no traffic had such steps."""
    counts = [
        knowledge.cost.num_shapes(load.low, load.high)
        for load in sorted({change.load for change in changes})
    ]
    calibrated, shapes = sum(few for few, _ in counts), sum(every for _, every in counts)
    if calibrated:
        ratio = knowledge.cost.calibration_ratio
        yield (
            f"{calibrated} of {shapes} step times come from the calibration, put to "
            f"{ratio:.2f} times what it measured."
        )


def _wishes(route: str, verdicts: Sequence[Verdict]) -> list[str]:
    missing = list(dict.fromkeys(arm for verdict in verdicts for arm in verdict.missing))
    return [
        *(wish for verdict in verdicts for wish in _turning_point(verdict)),
        *replay_wish(route, missing),
        *(_data_wish(verdict) for verdict in verdicts if verdict.why_not is not None),
    ]


def _turning_point(verdict: Verdict) -> list[str]:
    arm, tokens, needed = verdict.best_arm, verdict.best_tokens, verdict.needed_tokens
    if arm is None or tokens is None or needed is None or verdict.best_over_off is None:
        return []
    if verdict.best_over_off > 1:
        return [flip_wish(verdict.load, arm, tokens, needed)]
    return [rise_wish(verdict.load, arm, tokens, needed)] if needed <= arm.k + 1 else []


def _features(route: str, features: Mapping[Setting, FeatureCheck]) -> dict[Method, FeatureCheck]:
    """Return the check of each method's most used kind, with what it means for this route."""
    found: dict[Method, FeatureCheck] = {}
    for family, check in sorted(features.items(), key=lambda pair: pair[1].requests):
        own = {name: shift for name, shift in check.shift_by_route.items() if name == route}
        found[family.method] = replace(check, shift_by_route=own)
    return found


def _turning_points(
    route: str, verdicts: Sequence[Verdict], knowledge: Knowledge
) -> Iterator[TurningPoint]:
    for verdict in verdicts:
        arm, tokens, needed = verdict.best_arm, verdict.best_tokens, verdict.needed_tokens
        if arm is not None and tokens is not None and needed is not None:
            yield turning_point(knowledge, verdict.load, route, arm, tokens, needed)


def _data_wish(verdict: Verdict) -> str:
    return f"More steps at load {verdict.load.label}, live or replayed."


def _curves(route: str, knowledge: Knowledge) -> tuple[AcceptanceCurve, ...]:
    deepest: dict[Method, int] = {}
    for arm in knowledge.arms:
        if arm.method is not Method.OFF and not arm.is_adaptive:
            deepest[arm.method] = max(arm.k, deepest.get(arm.method, 0))
    return tuple(
        knowledge.acceptance.curve(route, method, depth)
        for method, depth in deepest.items()
        if knowledge.acceptance.evidence(route, method)
    )


def _cost_rows(
    changes: Sequence[LoadChange], knowledge: Knowledge
) -> tuple[tuple[int, int, float], ...]:
    loads = sorted({change.load for change in changes})
    rows = (knowledge.cost.rows_of(load.low, load.high) for load in loads)
    return tuple(row for level in rows for row in level)
