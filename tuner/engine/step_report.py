"""Gathers what one step did, and makes its `DecodeStep` of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from collectors.records import DecodeStep, DraftCost, Setting, StepGroup, StepOutcome
from tuner.engine.adaptive import StepFigures
from tuner.engine.row import Row


@dataclass(slots=True)
class _Group:
    tokens: int = 0
    outcomes: Counter[tuple[int, int]] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class StepReport:
    """Counts and times of the step in progress.

    Attributes:
        started_s: when the step began.
        plan_digest: the plan in force.
        clock: seconds, monotonic.
        is_reference: the step runs without drafts for comparison.
        drafts: cost of drafting by method.
        positions: positions the target computed.
        prefill_tokens: prompt positions among them.
        context_tokens: KV entries held before the step.
    """

    started_s: float
    plan_digest: str
    clock: Callable[[], float]
    is_reference: bool = False
    drafts: tuple[DraftCost, ...] = ()
    positions: int = 0
    prefill_tokens: int = 0
    context_tokens: int = 0
    _verify_started_s: float = 0.0
    _sample_started_s: float = 0.0
    _commit_started_s: float = 0.0
    _groups: dict[tuple[str, Setting, bool, bool], _Group] = field(default_factory=dict)

    def begin_verify(self) -> None:
        """Drafting is done, the target's pass begins."""
        self._verify_started_s = self.clock()

    def begin_sample(self) -> None:
        """The pass is done, sampling and verification begin."""
        self._sample_started_s = self.clock()

    def begin_commit(self) -> None:
        """Verification is done."""
        self._commit_started_s = self.clock()

    def figures(self) -> StepFigures:
        """Return what adaptive drafts learn from the step so far."""
        groups = self._groups.values()
        return StepFigures(
            rows=sum(group.outcomes.total() for group in groups),
            positions=self.positions,
            prefill_tokens=self.prefill_tokens,
            tokens=sum(group.tokens for group in groups),
            draft_s=sum(cost.seconds for cost in self.drafts),
            rest_s=self.clock() - self._verify_started_s,
        )

    def count(self, row: Row, drafted: int, accepted: int, delivered: int) -> None:
        """Count one decoding row."""
        request = row.request
        key = (request.route, row.setting, request.is_shadow, request.sampling.is_greedy)
        group = self._groups.setdefault(key, _Group())
        group.tokens += delivered
        group.outcomes[(drafted, accepted)] += 1

    def record(self, *, seq: int, at: float, running: int, waiting: int) -> DecodeStep:
        """Return the step's record; everything not drafting, verifying or sampling is `other_s`."""
        verify_s = self._sample_started_s - self._verify_started_s
        sample_s = self._commit_started_s - self._sample_started_s
        draft_s = sum(cost.seconds for cost in self.drafts)
        step_s = self.clock() - self.started_s
        return DecodeStep(
            seq=seq,
            at=at,
            plan_digest=self.plan_digest,
            running=running,
            waiting=waiting,
            positions=self.positions,
            prefill_tokens=self.prefill_tokens,
            context_tokens=self.context_tokens,
            verify_s=verify_s,
            sample_s=sample_s,
            other_s=max(0.0, step_s - verify_s - sample_s - draft_s),
            drafts=self.drafts,
            groups=tuple(self._group_records()),
            is_reference=self.is_reference,
        )

    def _group_records(self) -> list[StepGroup]:
        return [
            StepGroup(
                route=route,
                setting=setting,
                is_shadow=is_shadow,
                is_greedy=is_greedy,
                tokens=group.tokens,
                outcomes=tuple(
                    StepOutcome(drafted=drafted, accepted=accepted, rows=rows)
                    for (drafted, accepted), rows in sorted(group.outcomes.items())
                ),
            )
            for (route, setting, is_shadow, is_greedy), group in self._groups.items()
        ]
