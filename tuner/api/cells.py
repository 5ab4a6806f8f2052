"""From windows to the rows that the overview and the route page show."""

from __future__ import annotations

from collections.abc import Sequence

from collectors.records import LoadLevel, Plan, Setting
from dashboards.views import Cell, LoadTotal, Proposal
from policy.types import Evidence, Observation, RequestObservation, Window
from tuner.api.sums import (
    grouped,
    mixes_summed,
    observations_summed,
    requests_summed,
)
from tuner.store.recommendations import StoredRecommendation

Place = tuple[str, LoadLevel]


def cells_of(
    windows: Sequence[Window],
    plan: Plan | None,
    newest: dict[str, StoredRecommendation],
    route: str | None = None,
) -> tuple[Cell, ...]:
    """Return one cell a route and load level with live traffic, by route, then load.

    Args:
        windows: closed windows to add up.
        plan: the live plan; None where it could not be read.
        newest: newest recommendation that still speaks, by route.
        route: only this route; None for all.
    """
    live = grouped(_live(windows, route), lambda seen: (seen.route, seen.load))
    finished = grouped(_finished(windows, route), lambda seen: (seen.route, seen.load))
    return tuple(
        _cell(place, live.get(place, []), finished.get(place, []), plan, newest.get(place[0]))
        for place in sorted(live.keys() | finished.keys())
    )


def load_totals(windows: Sequence[Window]) -> tuple[LoadTotal, ...]:
    """Return what the engine did at each load level."""
    mixes = mixes_summed(mix for window in windows for mix in window.mixes)
    return tuple(
        LoadTotal(
            load=mix.load,
            steps=mix.steps,
            busy_s=mix.busy_s,
            tokens=mix.tokens,
            tokens_per_s=mix.tokens / mix.busy_s if mix.busy_s > 0 else None,
            mean_step_s=mix.busy_s / mix.steps if mix.steps else None,
        )
        for mix in mixes
    )


def _live(windows: Sequence[Window], route: str | None) -> list[Observation]:
    return [
        seen
        for window in windows
        for seen in window.observations
        if seen.evidence is Evidence.LIVE and route in (None, seen.route)
    ]


def _finished(windows: Sequence[Window], route: str | None) -> list[RequestObservation]:
    return [seen for window in windows for seen in window.requests if route in (None, seen.route)]


def _cell(
    place: Place,
    live: Sequence[Observation],
    finished: Sequence[RequestObservation],
    plan: Plan | None,
    said: StoredRecommendation | None,
) -> Cell:
    route, load = place
    steps = observations_summed(live) if live else None
    done = requests_summed(finished) if finished else None
    # A request's first token comes from prefill, before its decode time begins.
    decoded = done.completion_tokens - done.requests if done else 0
    return Cell(
        route=route,
        load=load,
        requests=done.requests if done else 0,
        passes=steps.passes if steps else 0,
        verify_passes=steps.verify_passes if steps else 0,
        drafted=steps.drafted if steps else 0,
        accepted=steps.accepted if steps else 0,
        tokens=steps.tokens if steps else 0,
        acceptance_rate=steps.acceptance_rate if steps else None,
        acceptance_length=steps.acceptance_length if steps else None,
        tokens_per_pass=steps.tokens_per_pass if steps else None,
        coverage=steps.coverage if steps else None,
        request_tokens_per_s=decoded / done.decode_s if done and done.decode_s > 0 else None,
        ttft_p50_s=done.ttft.quantile_s(0.50) if done else None,
        ttft_p95_s=done.ttft.quantile_s(0.95) if done else None,
        tpot_p50_s=done.tpot.quantile_s(0.50) if done else None,
        tpot_p95_s=done.tpot.quantile_s(0.95) if done else None,
        settings_seen=_settings_by_use(live),
        live=plan.setting_for(route, load) if plan else None,
        proposal=_proposal(load, said) if said else None,
    )


def _settings_by_use(live: Sequence[Observation]) -> tuple[Setting, ...]:
    by_setting = grouped(live, lambda seen: seen.setting)
    passes = {s: sum(one.planned_passes for one in seen) for s, seen in by_setting.items()}
    return tuple(sorted(filter(passes.get, passes), key=lambda setting: -passes[setting]))


def _proposal(load: LoadLevel, said: StoredRecommendation) -> Proposal:
    change = next((change for change in said.said.changes if change.load == load), None)
    return Proposal(
        recommendation_id=said.id,
        state=said.state,
        advice=said.said.advice,
        setting=change.proposed if change else None,
        is_change=change is not None and change.proposed != change.current,
        gain=change.engine_total.minus_one if change else None,
    )
