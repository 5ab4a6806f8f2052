"""The gate on a page: evidence by Setting on a recommendation's own route, and Run now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sqlalchemy.orm import Session

from collectors.records import Setting
from dashboards.views import GateLine
from tuner.store import evaluations, gate_runs
from tuner.store.evaluations import Evaluation
from tuner.store.gate_runs import GateRun, GateState
from tuner.store.recommendations import StoredRecommendation
from tuner.workflows.evaluate import (
    missing_reason,
    proposed_loads,
    proposed_settings,
    unmeasured_note,
)
from tuner.workflows.gate import ask_gate
from tuner.workflows.site import Site

_COUNTED = {"outputs": "answers", "speed": "pairs"}


class Gatekeeper(Protocol):
    """Shows the evidence on what a recommendation proposes, and has it made."""

    def lines(self, stored: StoredRecommendation) -> tuple[GateLine, ...]:
        """Return a line a proposed Setting, off left out."""

    def run(self, stored: StoredRecommendation, *, who: str) -> int:
        """Ask for an evaluation of each proposed Setting; return how many were not open yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteGatekeeper:
    """Implements ``Gatekeeper`` on the engine of a site."""

    site: Site

    def lines(self, stored: StoredRecommendation) -> tuple[GateLine, ...]:
        """Return a line a proposed Setting, off left out.

        Raises:
            SourceUnreachable: the engine does not answer, so its configuration is not known.
        """
        return tuple(self._line(stored, setting) for setting in proposed_settings(stored))

    def run(self, stored: StoredRecommendation, *, who: str) -> int:
        """Ask for an evaluation of each proposed Setting; return how many were not open yet.

        Raises:
            BadRequest: the engine cannot run one of them.
            SourceUnreachable: the engine does not answer.
        """
        return sum(
            ask_gate(self.site, setting, stored.route, who=who)
            for setting in proposed_settings(stored)
        )

    def _line(self, stored: StoredRecommendation, setting: Setting) -> GateLine:
        loads, route = proposed_loads(stored, setting), stored.route
        reason = missing_reason(self.site, setting, route, loads)
        digest = self.site.collector.capabilities().pinned_at(setting).digest
        with self.site.store.reading() as session:
            latest = evaluations.latest(session, digest, route)
            run = self._run_of(session, digest, route)
        return GateLine(
            route=route,
            setting=setting,
            is_open=reason is None,
            reason=reason,
            findings=() if latest is None else latest.reasons,
            note=None if latest is None else unmeasured_note(loads, latest),
            at=None if latest is None else latest.at,
            replay=None if latest is None else latest.replay,
            divergence=None if latest is None else latest.divergence,
            is_running=run is not None and run.ended_at is None,
            progress=progress_of(run, latest),
        )

    def _run_of(self, session: Session, digest: str, route: str) -> GateRun | None:
        return gate_runs.latest(session, engine=self.site.engine, route=route, digest=digest)


def progress_of(run: GateRun | None, latest: Evaluation | None) -> str:
    """Return how far an evaluation is; why it failed where no verdict came after it."""
    if run is None or run.state is GateState.DONE:
        return ""
    if run.state is GateState.ASKED:
        return f"asked for by {run.who}, about to begin"
    if run.state is GateState.RUNNING:
        counted = _COUNTED.get(run.phase, "")
        return f"{run.done} of {run.total} {counted}" if counted else "begins"
    is_old = latest is not None and latest.at >= run.moved_at
    return "" if is_old else f"the last one failed: {run.error}"
