"""From stored replays and divergence reports to what their pages show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collectors.records import PinnedConfig
from dashboards.views import (
    ArmCounts,
    ArmFigures,
    DivergenceLine,
    DivergenceRoute,
    DivergenceView,
    ReplayLine,
    ReplayPair,
    ReplayView,
    Split,
)
from policy.gate import RouteSpeed
from tuner.store import divergences, replays


def replay_line(
    stored: replays.StoredReplay, base: PinnedConfig, other: PinnedConfig
) -> ReplayLine:
    """Return what a list shows of a replay."""
    return ReplayLine(
        id=stored.id,
        state=stored.state,
        routes=(stored.route,) if stored.route else (),
        baseline=base.setting,
        candidate=other.setting,
        started_at=stored.started_at,
        ended_at=stored.ended_at,
        pairs=stored.summary.pairs,
        void_pairs=stored.summary.void_pairs,
        speedup=stored.summary.speedup,
        planned_pairs=stored.summary.planned_pairs,
    )


def replay_view(
    stored: replays.StoredReplay,
    base: PinnedConfig,
    other: PinnedConfig,
    pairs: Sequence[replays.ReplayPair],
    speeds: Sequence[RouteSpeed],
) -> ReplayView:
    """Return what the page of a replay shows."""
    valid = [pair for pair in pairs if pair.void_reason is None]
    return ReplayView(
        line=replay_line(stored, base, other),
        routes=tuple(speeds),
        baseline=_arm([pair.base for pair in valid], base),
        candidate=_arm([pair.other for pair in valid], other),
        pairs=tuple(_pair(pair) for pair in pairs),
        error=stored.error,
    )


def divergence_line(stored: divergences.StoredDivergence, tested: PinnedConfig) -> DivergenceLine:
    """Return what a list shows of a divergence report."""
    return DivergenceLine(
        id=stored.id,
        at=stored.at,
        setting=tested.setting,
        arm=_counts(stored.summary.tested),
        control=_counts(stored.summary.control),
        diverges=stored.summary.diverges,
        verdict=stored.summary.verdict,
    )


def divergence_view(
    stored: divergences.StoredDivergence,
    tested: PinnedConfig,
    pairs: Sequence[divergences.DivergencePair],
    by_route: Mapping[str, divergences.DivergenceSummary],
) -> DivergenceView:
    """Return what the page of a divergence report shows."""
    return DivergenceView(
        line=divergence_line(stored, tested),
        routes=tuple(_route(route, summary) for route, summary in by_route.items()),
        noise_margin=stored.summary.noise_margin,
        false_alarm_rate=stored.summary.false_alarm_rate,
        p_value=stored.summary.p_value,
        baseline_digest=stored.plain,
        candidate_digest=stored.tested,
        splits=tuple(_split(pair) for pair in pairs if pair.kind != "identical"),
    )


def _arm(runs: Sequence[replays.ArmRun], config: PinnedConfig) -> ArmFigures:
    """Sum the runs; passes and accepted tokens only where the engine told both."""
    tokens = sum(run.tokens for run in runs)
    seconds = sum(run.seconds for run in runs)
    told = [(run.passes, run.accepted) for run in runs]
    passes = sum(passes or 0 for passes, _ in told)
    accepted = sum(accepted or 0 for _, accepted in told)
    is_told = bool(told) and all(None not in pair for pair in told) and passes > 0
    return ArmFigures(
        setting=config.setting,
        config_digest=config.digest,
        tokens=tokens,
        seconds=seconds,
        passes=passes if is_told else None,
        accepted=accepted if is_told else None,
        tokens_per_pass=(passes + accepted) / passes if is_told else None,
        tokens_per_s=tokens / seconds if seconds > 0 else None,
    )


def _pair(pair: replays.ReplayPair) -> ReplayPair:
    times = pair.token_times_s or (None, None)
    return ReplayPair(
        request_id=pair.request_id,
        route=pair.route,
        baseline_tokens=pair.base.tokens,
        candidate_tokens=pair.other.tokens,
        baseline_s=pair.base.seconds,
        candidate_s=pair.other.seconds,
        baseline_token_s=times[0],
        candidate_token_s=times[1],
        ratio=pair.ratio,
        void_reason=pair.void_reason,
    )


def _counts(counts: divergences.ArmCounts) -> ArmCounts:
    return ArmCounts(
        pairs=counts.pairs,
        identical=counts.identical,
        near_tie=counts.near_tie,
        suspicious=counts.suspicious,
        length=counts.length,
        error=counts.error,
    )


def _route(route: str, summary: divergences.DivergenceSummary) -> DivergenceRoute:
    return DivergenceRoute(
        route=route,
        arm=_counts(summary.tested),
        control=_counts(summary.control),
        diverges=summary.diverges,
        verdict=summary.verdict,
    )


def _split(pair: divergences.DivergencePair) -> Split:
    return Split(
        request_id=pair.request_id,
        route=pair.route,
        is_control=pair.arm == "control",
        kind=pair.kind,
        position=pair.split_at,
        margin=pair.margin,
        detail=pair.detail,
    )
