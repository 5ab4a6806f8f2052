"""What one run of the demo did, read from the store; the clients' own timings come beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from collectors.records import Plan
from policy.outcome import Outcome
from tuner.demo.cells import Cell, cells_of
from tuner.demo.client import ClientTrace
from tuner.store import (
    Store,
    counts,
    divergences,
    facts,
    outcomes,
    pinned,
    recommendations,
    replays,
)
from tuner.store.coding import recommendation_to_dict
from tuner.store.counts import Span
from tuner.store.divergences import StoredDivergence
from tuner.store.facts import JournalTotals
from tuner.store.recommendations import State, StoredRecommendation
from tuner.store.replays import StoredReplay


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What became of the engine's journal in this run.

    Attributes:
        journalled: last number the engine gave, steps and requests.
        stored: records stored.
        lost: records overwritten before they were read.
    """

    journalled: int
    stored: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayLine:
    """A shadow replay and the Settings it compared."""

    replay: StoredReplay
    base: str
    other: str

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form that ``spectuner demo --json`` documents."""
        summary = self.replay.summary
        return {
            "id": self.replay.id,
            "route": self.replay.route,
            "base": self.base,
            "other": self.other,
            "state": self.replay.state.value,
            **summary.to_dict(),
            "error": self.replay.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceLine:
    """A divergence report and the Setting it tested."""

    report: StoredDivergence
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSummary:
    """Everything the demo reports at its end.

    Attributes:
        cells: routes x load levels.
        recommendations: said in this run, oldest first.
        were_live: numbers of those that came into force, whatever became of them.
        replays: made in this run, oldest first.
        divergences: made in this run, oldest first.
        steps: the journal's account.
        clients: requests as their clients saw them.
        unsent: arrivals whose phase ended before their turn came.
        outcomes: predicted beside measured, by number of the recommendation.
    """

    cells: tuple[Cell, ...]
    recommendations: tuple[StoredRecommendation, ...]
    were_live: frozenset[int]
    replays: tuple[ReplayLine, ...]
    divergences: tuple[DivergenceLine, ...]
    steps: Steps
    clients: tuple[ClientTrace, ...]
    unsent: int
    outcomes: Mapping[int, tuple[Outcome, ...]] = field(default_factory=dict)

    @property
    def worth_showing(self) -> tuple[StoredRecommendation, ...]:
        """Recommendations that stand or came into force; the others were replaced unread."""
        return tuple(
            entry
            for entry in self.recommendations
            if entry.state is not State.SUPERSEDED or entry.id in self.were_live
        )

    def to_dict(self) -> dict[str, object]:
        """Return the figures; docs/json.md documents the keys."""
        tested = [line.report.summary.tested for line in self.divergences]
        control = [line.report.summary.control for line in self.divergences]
        return {
            "cells": [cell.to_dict() for cell in self.cells],
            "recommendations": [
                _said(entry, self.outcomes.get(entry.id, ())) for entry in self.recommendations
            ],
            "replays": [line.to_dict() for line in self.replays],
            "divergence": {
                "pairs": sum(counted.pairs for counted in tested),
                "identical": sum(counted.identical for counted in tested),
                "near_tie": sum(counted.near_tie for counted in tested),
                "suspicious": sum(counted.suspicious for counted in tested),
                "control_identical": sum(counted.identical for counted in control),
            },
            "steps": {
                "journalled": self.steps.journalled,
                "stored": self.steps.stored,
                "lost": self.steps.lost,
            },
        }


def totals_before(store: Store, engine: str) -> JournalTotals:
    """Return the journal's account so far, to be taken off at the end."""
    with store.reading() as session:
        return facts.totals(session, engine)


def summarise(
    store: Store,
    *,
    span: Span,
    started_at: datetime,
    plan: Plan,
    before: JournalTotals,
    journalled: int,
    clients: Sequence[ClientTrace],
    unsent: int,
) -> DemoSummary:
    """Read one run from the store.

    Args:
        store: at head.
        span: the engine and the time of the run.
        started_at: start of the run.
        plan: in force at the end.
        before: the journal's account at the start.
        journalled: last sequence number of the engine.
        clients: what the clients saw.
        unsent: arrivals that were never sent.
    """
    engine = span.engine
    with store.reading() as session:
        after = facts.totals(session, engine)
        observed = counts.observations(session, span)
        requests = counts.requests(session, span)
        mixes = counts.mixes(session, span)
        said = recommendations.listed(session, engine=engine)
        replayed = replays.listed(session)
        reported = divergences.listed(session)
        were_live = frozenset(
            entry.id
            for entry in said
            if any(
                step.after is State.PROMOTED
                for step in recommendations.transitions(session, entry.id)
            )
        )
        brought = outcomes.of(session, sorted(were_live))
        labels = {config.digest: config.setting.label for config in pinned.listed(session)}
    new = tuple(entry for entry in reversed(said) if entry.refreshed_at >= started_at)
    newest = {entry.route: entry.said for entry in new}
    return DemoSummary(
        cells=cells_of(observed, requests, mixes, plan, tuple(newest.values())),
        recommendations=new,
        were_live=were_live,
        replays=tuple(
            ReplayLine(replay=run, base=labels[run.base], other=labels[run.other])
            for run in reversed(replayed)
            if run.engine == engine and run.started_at >= started_at
        ),
        divergences=tuple(
            DivergenceLine(report=report, setting=labels[report.tested])
            for report in reversed(reported)
            if report.engine == engine and report.at >= started_at
        ),
        steps=Steps(
            journalled=journalled,
            stored=after.stored - before.stored,
            lost=after.lost - before.lost,
        ),
        clients=tuple(clients),
        unsent=unsent,
        outcomes=brought,
    )


def _said(entry: StoredRecommendation, brought: Sequence[Outcome]) -> dict[str, object]:
    """Return a recommendation with the two figures of its largest change, and what it brought."""
    moved = [change for change in entry.said.changes if change.proposed != change.current]
    best = max(moved, key=lambda change: change.engine_total.mean, default=None)
    return {
        "id": entry.id,
        "state": entry.state.value,
        "route_speed": None if best is None else best.route_speed.to_dict(),
        "engine_total": None if best is None else best.engine_total.to_dict(),
        "realised": [
            {
                "load": one.load.label,
                "setting": one.setting.label,
                "figure": one.figure,
                "basis": one.basis.value,
                "predicted": one.predicted.to_dict(),
                "realised": one.realised.to_dict(),
                "is_missed": one.is_missed,
            }
            for one in brought
        ],
        **recommendation_to_dict(entry.said),
    }
