"""What another plan would have been worth, from logged decisions and what was learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collectors.records import LoadLevel, Plan
from policy.forecast import predicted_tokens_per_s
from policy.lottery import Place
from policy.off_policy import PlanValue, Unit, evaluate
from policy.recommend import learn
from policy.types import Evidence, LoadMix, Window
from policy.verdicts import Case
from tuner.errors import NothingToDo
from tuner.store import decisions, observations
from tuner.store.decisions import Decision, DecisionLog
from tuner.workflows.calibrate import calibration_of
from tuner.workflows.drift import ground
from tuner.workflows.recommend import options_of, routes_of
from tuner.workflows.site import Site

LEAST_SHARE = 0.95
"""Share of a window for which its plan was in force, and of a place's passes that ran the plan's
Setting, from which the window tells of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """Windows as units, and what could not be used.

    Attributes:
        units: one a place and window.
        left_out: reasons and how many places of windows they left out.
        num_decisions: decisions in force in them.
        draws: the decisions of this time that were drawn, used or not.
    """

    units: tuple[Unit, ...]
    left_out: Mapping[str, int]
    num_decisions: int
    draws: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWorth:
    """The answer: the estimates, and what they stand on.

    Attributes:
        value: the estimates.
        logged: what they were made from.
        start_s: start of the first window, Unix seconds.
        end_s: end of the last one.
    """

    value: PlanValue
    logged: Logged
    start_s: float
    end_s: float


def plan_worth(site: Site, candidate: Plan, span_s: float) -> PlanWorth:
    """Estimate what a plan would have yielded lately.

    Args:
        site: the engine.
        candidate: the plan asked about.
        span_s: how far to look back, in seconds.

    Raises:
        NothingToDo: no window with a logged decision lies within.
        EngineUnreachable: the plan in force cannot be read.
        SourceUnreachable: the engine's capabilities cannot be read.
    """
    now_s = site.clock()
    with site.store.reading() as session:
        windows = observations.between(session, site.engine, now_s - span_s, now_s)
        log = decisions.log_of(session, site.engine, now_s - span_s, now_s)
    case = _learned(site, windows, candidate, now_s) if windows else None
    logged = units_of(windows, log, case)
    if case is None or not logged.units:
        raise NothingToDo(
            f"no closed window of the last {span_s / 3600:.1f} h ran under one logged plan; let "
            "the service run, or look further back with --hours"
        )
    predicted = predicted_tokens_per_s(case.knowledge, case.mixes, candidate)
    return PlanWorth(
        value=evaluate(logged.units, candidate, predicted),
        logged=logged,
        start_s=windows[0].start_s,
        end_s=windows[-1].end_s,
    )


def units_of(windows: tuple[Window, ...], log: DecisionLog, case: Case | None) -> Logged:
    """Turn windows into units, each with the chances of the decision in force throughout it."""
    units: list[Unit] = []
    left_out: dict[str, int] = {}
    predictions: dict[str, Mapping[Place, float]] = {}
    used: set[float] = set()
    for window in windows:
        decision = log.throughout(window.start_s, window.end_s, LEAST_SHARE)
        if decision is not None and case is not None:
            digest = decision.plan.digest
            if digest not in predictions:
                predictions[digest] = predicted_tokens_per_s(
                    case.knowledge, case.mixes, decision.plan
                )
        for mix, route in _places(window):
            if decision is None:
                _count(left_out, "the plan changed within the window, or none was logged")
                continue
            unit = _unit(window, mix, route, decision, predictions.get(decision.plan.digest, {}))
            if unit is None:
                _count(left_out, "requests brought Settings of their own")
                continue
            units.append(unit)
            used.add(decision.at_s)
    draws = tuple(one for one in log.decisions if one.seed is not None)
    return Logged(units=tuple(units), left_out=left_out, num_decisions=len(used), draws=draws)


def _learned(site: Site, windows: tuple[Window, ...], candidate: Plan, now_s: float) -> Case:
    known = ground(site, windows).windows
    proposed = tuple(entry.setting for entry in candidate.entries)
    return learn(
        calibration_of(site, known),
        routes_of(site, windows),
        site.actuator.read_back(),
        (*site.possible_arms(), candidate.default, *proposed),
        now_s=now_s,
        generator=site.generator(),
        options=options_of(site.settings),
    )


def _places(window: Window) -> Iterator[tuple[LoadMix, str]]:
    for mix in window.mixes:
        if mix.busy_s > 0:
            for route in mix.rows_by_route:
                yield mix, route


def _unit(
    window: Window,
    mix: LoadMix,
    route: str,
    decision: Decision,
    predicted: Mapping[Place, float],
) -> Unit | None:
    """Return what a place did in a window; None where it mostly ran other Settings than planned."""
    place: tuple[str, LoadLevel] = (route, mix.load)
    seen = [
        one
        for one in window.observations
        if one.evidence is Evidence.LIVE and (one.route, one.load) == place
    ]
    setting = decision.plan.setting_for(*place)
    passes = sum(one.passes for one in seen)
    planned = sum(one.planned_passes for one in seen)
    own = sum(one.planned_passes for one in seen if one.setting == setting)
    if not planned or own < LEAST_SHARE * planned:
        return None
    # Steps with replayed rows count in observations, but not in the mix whose seconds are used.
    tokens_per_pass = sum(one.tokens for one in seen) / passes
    return Unit(
        window_s=window.end_s,
        setting=setting,
        chance=decision.chance_at(place, window.end_s),
        tokens_per_s=mix.rows_by_route[route] * mix.steps * tokens_per_pass / mix.busy_s,
        busy_s=mix.busy_s,
        predicted=predicted.get(place),
    )


def _count(reasons: dict[str, int], reason: str) -> None:
    reasons[reason] = reasons.get(reason, 0) + 1
