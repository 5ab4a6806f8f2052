"""Facts of a span of time, counted by the database: the sums behind ``policy.types.Window``.

Spans are half open, [start_s, end_s), in Unix seconds. Live traffic and shadow traffic never mix.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlalchemy import ColumnElement, and_, case, func, not_, select
from sqlalchemy.orm import Session

from collectors.records import (
    CALIBRATION_ROUTE,
    FinishReason,
    LatencyHistogram,
    LoadLevel,
    Setting,
    load_level_named,
)
from collectors.records.parsing import as_object
from policy.decode_sum import DecodeSum
from policy.types import (
    Evidence,
    LoadMix,
    Observation,
    RequestObservation,
)
from tuner.store import arms
from tuner.store.schema import RequestTraceRow, StepDraftRow, StepGroupRow, StepRow

_Key: TypeAlias = tuple[str, str, str, bool, bool]
"""Route, Setting, load level, shadow, greedy."""

STEP_SECONDS = StepRow.draft_s + StepRow.verify_s + StepRow.sample_s + StepRow.other_s
"""Seconds of a whole step."""

_FINISHED = (FinishReason.STOP, FinishReason.LENGTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One engine between two moments.

    Attributes:
        engine: engine name.
        start_s: first moment that counts, Unix seconds.
        end_s: first moment that does not.
    """

    engine: str
    start_s: float
    end_s: float

    def covers(
        self, table: type[StepRow | StepGroupRow | StepDraftRow | RequestTraceRow]
    ) -> ColumnElement[bool]:
        """Return the condition that a row lies within."""
        return and_(
            table.engine == self.engine, table.at_s >= self.start_s, table.at_s < self.end_s
        )


@dataclass(slots=True)
class _Tally:
    """Sums of one observation while outcomes are added."""

    passes: int = 0
    reference_passes: int = 0
    verify_passes: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    attempts: list[int] = field(default_factory=list)
    accepts: list[int] = field(default_factory=list)

    def add(self, drafted: int, accepted: int, rows: int) -> None:
        """Count rows that drafted some tokens and kept a run of them."""
        self.passes += rows
        self.verify_passes += rows if drafted else 0
        self.drafted += drafted * rows
        self.accepted += accepted * rows
        for position in range(min(drafted, accepted + 1)):
            if position == len(self.attempts):
                self.attempts.append(0)
                self.accepts.append(0)
            self.attempts[position] += rows
            self.accepts[position] += rows if position < accepted else 0


def observations(session: Session, span: Span) -> tuple[Observation, ...]:
    """Fold step groups into one observation per route, Setting, load, evidence and sampling."""
    group = StepGroupRow
    key = (group.route, group.setting, group.load, group.is_shadow, group.is_greedy)
    counted = session.execute(
        select(*key, group.outcomes, func.count(), func.sum(group.tokens))
        .where(span.covers(group), not_(and_(group.route == CALIBRATION_ROUTE, group.is_shadow)))
        .group_by(*key, group.outcomes)
    )
    tallies: dict[_Key, _Tally] = {}
    for route, setting, load, is_shadow, is_greedy, outcomes, times, tokens in counted:
        tally = tallies.setdefault((route, setting, load, is_shadow, is_greedy), _Tally())
        tally.tokens += tokens
        for drafted, accepted, rows in json.loads(outcomes):
            tally.add(drafted, accepted, rows * times)
    for key_, passes in _reference_passes(session, span):
        tallies[key_].reference_passes += passes
    settings = arms.by_key(session)
    return tuple(
        _observation(span, key_, settings[key_[1]], tally)
        for key_, tally in sorted(tallies.items())
    )


def _observation(span: Span, key: _Key, setting: Setting, tally: _Tally) -> Observation:
    route, _, load, is_shadow, is_greedy = key
    return Observation(
        route=route,
        setting=setting,
        load=load_level_named(load),
        evidence=Evidence.REPLAY if is_shadow else Evidence.LIVE,
        start_s=span.start_s,
        end_s=span.end_s,
        passes=tally.passes,
        verify_passes=tally.verify_passes,
        drafted=tally.drafted,
        accepted=tally.accepted,
        tokens=tally.tokens,
        attempts=tuple(tally.attempts),
        accepts=tuple(tally.accepts),
        is_greedy=is_greedy,
        reference_passes=tally.reference_passes,
    )


def _reference_passes(session: Session, span: Span) -> Iterator[tuple[_Key, int]]:
    """Yield the passes of reference steps by the observation that they are part of."""
    group = StepGroupRow
    key = (group.route, group.setting, group.load, group.is_shadow, group.is_greedy)
    counted = session.execute(
        select(*key, func.sum(group.rows))
        .join(StepRow, and_(StepRow.cursor == group.cursor, StepRow.seq == group.seq))
        .where(span.covers(StepRow), StepRow.is_reference.is_(True))
        .group_by(*key)
    )
    for route, setting, load, is_shadow, is_greedy, passes in counted:
        yield (route, setting, load, is_shadow, is_greedy), int(passes)


def mixes(session: Session, span: Span) -> tuple[LoadMix, ...]:
    """Return what typical steps held at each load level, steps with shadow rows left out.

    Means are over steps that decoded; ``busy_s`` also counts steps that only prefilled.
    """
    is_decoding = case((StepRow.rows > 0, 1), else_=0)
    by_load = session.execute(
        select(
            StepRow.load,
            func.sum(is_decoding),
            func.sum(is_decoding * StepRow.context_tokens),
            func.sum(STEP_SECONDS),
        )
        .where(span.covers(StepRow), StepRow.shadow_rows == 0)
        .group_by(StepRow.load)
    )
    rows_and_tokens = _live_rows(session, span)
    found = [
        _mix(load_level_named(load), int(steps), int(context), busy_s, rows_and_tokens.get(load))
        for load, steps, context, busy_s in by_load
    ]
    return tuple(sorted(found, key=lambda mix: mix.load))


def decode_sums(session: Session, span: Span) -> tuple[DecodeSum, ...]:
    """Return the sums of live steps without prefill: by route where steps held one row, by load."""
    only_decoded = and_(
        span.covers(StepRow),
        StepRow.rows > 0,
        StepRow.prefill_tokens == 0,
        StepRow.shadow_rows == 0,
    )
    by_load = session.execute(
        select(StepRow.load, func.count(), func.sum(STEP_SECONDS))
        .where(only_decoded)
        .group_by(StepRow.load)
    )
    is_of_step = and_(StepRow.cursor == StepGroupRow.cursor, StepRow.seq == StepGroupRow.seq)
    of_route = (func.count(), func.sum(StepGroupRow.tokens), func.sum(STEP_SECONDS))
    by_route = session.execute(
        select(StepRow.load, StepGroupRow.route, *of_route)
        .join(StepGroupRow, is_of_step)
        .where(only_decoded)
        .group_by(StepRow.load, StepGroupRow.route)
    ).all()
    tokens: Counter[str] = Counter()
    for load, _, _, made, _ in by_route:
        tokens[load] += int(made)
    own = [_decode_sum(*one) for one in by_route]
    shared = [_decode_sum(load, None, n, tokens[load], busy_s) for load, n, busy_s in by_load]
    found = [one for one in (*own, *shared) if one.load.is_lone == (one.route is not None)]
    return tuple(sorted(found, key=lambda one: (one.load, one.route or "")))


def _decode_sum(load: str, route: str | None, steps: int, tokens: int, busy_s: float) -> DecodeSum:
    return DecodeSum(
        load=load_level_named(load),
        route=route,
        steps=int(steps),
        tokens=int(tokens),
        busy_s=busy_s,
    )


def _live_rows(session: Session, span: Span) -> dict[str, dict[str, tuple[int, int]]]:
    """Return rows and tokens by load level label and route."""
    counted = session.execute(
        select(
            StepGroupRow.load,
            StepGroupRow.route,
            func.sum(StepGroupRow.rows),
            func.sum(StepGroupRow.tokens),
        )
        .join(StepRow, and_(StepRow.cursor == StepGroupRow.cursor, StepRow.seq == StepGroupRow.seq))
        .where(span.covers(StepGroupRow), StepRow.shadow_rows == 0)
        .group_by(StepGroupRow.load, StepGroupRow.route)
    )
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for load, route, rows, tokens in counted:
        found.setdefault(load, {})[route] = (int(rows), int(tokens))
    return found


def _mix(
    load: LoadLevel,
    steps: int,
    context: int,
    busy_s: float,
    by_route: dict[str, tuple[int, int]] | None,
) -> LoadMix:
    routes = by_route or {}
    return LoadMix(
        load=load,
        steps=steps,
        rows_by_route={route: rows / steps for route, (rows, _) in sorted(routes.items())},
        context_tokens=context / steps if steps else 0.0,
        tokens=sum(tokens for _, tokens in routes.values()),
        busy_s=busy_s,
    )


def requests(session: Session, span: Span) -> tuple[RequestObservation, ...]:
    """Return what finished live requests saw, by route, Setting and load level."""
    trace = RequestTraceRow
    rows = session.execute(
        select(
            trace.route,
            trace.setting,
            trace.load,
            trace.completion_tokens,
            trace.ttft_s,
            trace.duration_s,
            trace.chunk_gaps,
        ).where(
            span.covers(trace),
            trace.is_shadow.is_(False),
            trace.finish_reason.in_(list(_FINISHED)),
        )
    )
    grouped: dict[tuple[str, str, str], list[_Finished]] = {}
    for route, setting, load, tokens, ttft_s, duration_s, gaps in rows:
        histogram = LatencyHistogram.from_dict(as_object(gaps, "chunk_gaps"))
        one = _Finished(tokens=tokens, ttft_s=ttft_s, duration_s=duration_s, gaps=histogram)
        grouped.setdefault((route, setting, load), []).append(one)
    settings = arms.by_key(session)
    return tuple(
        _request_observation(route, settings[setting], load_level_named(load), finished)
        for (route, setting, load), finished in sorted(grouped.items())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finished:
    """What counts of one finished request."""

    tokens: int
    ttft_s: float | None
    duration_s: float
    gaps: LatencyHistogram

    @property
    def decode_s(self) -> float:
        """Seconds after the first token; 0 where there was none."""
        return 0.0 if self.ttft_s is None else self.duration_s - self.ttft_s


def _request_observation(
    route: str, setting: Setting, load: LoadLevel, finished: Sequence[_Finished]
) -> RequestObservation:
    spread = [one for one in finished if one.ttft_s is not None and one.tokens >= 2]
    return RequestObservation(
        route=route,
        setting=setting,
        load=load,
        requests=len(finished),
        completion_tokens=sum(one.tokens for one in finished),
        decode_s=sum(one.decode_s for one in finished),
        ttft=LatencyHistogram.of(one.ttft_s for one in finished if one.ttft_s is not None),
        chunk_gaps=_merged(one.gaps for one in finished),
        tpot=LatencyHistogram.of(one.decode_s / (one.tokens - 1) for one in spread),
    )


def _merged(histograms: Iterable[LatencyHistogram]) -> LatencyHistogram:
    parts = list(histograms)
    counts = tuple(map(sum, zip(*(part.counts for part in parts), strict=True)))
    return LatencyHistogram(counts=counts, total_s=sum(part.total_s for part in parts))
