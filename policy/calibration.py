"""What steps cost on an idle engine: journal records folded into costs by shape.

Steps with prefill are left out. So is what took more than twice the median of its shape: somebody
else's work on the machine is no cost of the step.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from collectors.records import DecodeStep, Method
from policy.timings import CatchUp
from policy.types import DraftObservation, StepCost, Window

MOST_OVER_MEDIAN = 2.0
_Cost = TypeVar("_Cost", StepCost, DraftObservation)
_Shape = TypeVar("_Shape", tuple[int, int, int], tuple[Method, int, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedCosts:
    """Costs by shape.

    Attributes:
        steps: target passes, drafting left out.
        drafts: draft rounds, those that read a prompt left out.
        catch_ups: draft rounds that read a prompt.
    """

    steps: tuple[StepCost, ...] = ()
    drafts: tuple[DraftObservation, ...] = ()
    catch_ups: tuple[CatchUp, ...] = ()

    @property
    def num_steps(self) -> int:
        """Target passes counted."""
        return sum(cost.steps for cost in self.steps)

    def plus(self, other: CalibratedCosts) -> CalibratedCosts:
        """Return both together, equal shapes added up."""
        return CalibratedCosts(
            steps=_summed_steps((*self.steps, *other.steps)),
            drafts=_summed_drafts((*self.drafts, *other.drafts)),
            catch_ups=(*self.catch_ups, *other.catch_ups),
        )

    def window(self, at_s: float) -> Window:
        """Return the costs as a window of no length.

        Args:
            at_s: Unix seconds; no later than other windows, whose counts would fade to it.
        """
        return Window(
            start_s=at_s,
            end_s=at_s,
            step_costs=self.steps,
            draft_costs=self.drafts,
            catch_ups=self.catch_ups,
            is_calibration=True,
        )


def costs_of(steps: Sequence[DecodeStep]) -> CalibratedCosts:
    """Fold consecutive steps of one batch."""
    plain = [step for step in steps if not step.prefill_tokens and step.groups]
    first_seqs = {
        step.seq
        for before, step in pairwise(steps)
        if before.prefill_tokens and not step.prefill_tokens
    }
    return CalibratedCosts(
        steps=_step_costs(plain),
        drafts=_draft_costs(step for step in plain if step.seq not in first_seqs),
        catch_ups=tuple(
            CatchUp(
                method=cost.method,
                context_tokens=step.context_tokens,
                rounds=1,
                total_s=cost.seconds,
            )
            for step in plain
            if step.seq in first_seqs
            for cost in step.drafts
        ),
    )


def context_bucket(context_tokens: int) -> int:
    """Return the middle of the octave that holds a number of KV entries; 0 for none."""
    bucket = 1 << (context_tokens.bit_length() - 1) if context_tokens else 0
    return bucket + bucket // 2


def _step_costs(steps: Iterable[DecodeStep]) -> tuple[StepCost, ...]:
    times: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for step in steps:
        shape = (step.running, step.positions, context_bucket(step.context_tokens))
        times[shape].append(step.step_s - step.draft_s)
    kept = {shape: _undisturbed(taken) for shape, taken in times.items()}
    return tuple(
        StepCost(
            rows=rows,
            positions=positions,
            context_tokens=context,
            steps=len(taken),
            total_s=sum(taken),
            total_square_s2=sum(seconds**2 for seconds in taken),
        )
        for (rows, positions, context), taken in sorted(kept.items())
    )


def _draft_costs(steps: Iterable[DecodeStep]) -> tuple[DraftObservation, ...]:
    times: dict[tuple[Method, int, int], list[float]] = defaultdict(list)
    for cost in (cost for step in steps for cost in step.drafts):
        times[cost.method, cost.rows, cost.depth].append(cost.seconds)
    kept: Mapping[tuple[Method, int, int], list[float]] = {
        shape: _undisturbed(taken) for shape, taken in times.items()
    }
    return tuple(
        DraftObservation(
            method=method, rows=rows, depth=depth, rounds=len(taken), total_s=sum(taken)
        )
        for (method, rows, depth), taken in sorted(kept.items())
    )


def _undisturbed(seconds: Sequence[float]) -> list[float]:
    most = MOST_OVER_MEDIAN * statistics.median(seconds)
    return [one for one in seconds if one <= most]


def _summed_steps(costs: Iterable[StepCost]) -> tuple[StepCost, ...]:
    def plus(one: StepCost, other: StepCost) -> StepCost:
        return replace(
            other,
            steps=one.steps + other.steps,
            total_s=one.total_s + other.total_s,
            total_square_s2=one.total_square_s2 + other.total_square_s2,
        )

    return _summed(costs, lambda cost: (cost.rows, cost.positions, cost.context_tokens), plus)


def _summed_drafts(costs: Iterable[DraftObservation]) -> tuple[DraftObservation, ...]:
    def plus(one: DraftObservation, other: DraftObservation) -> DraftObservation:
        return replace(other, rounds=one.rounds + other.rounds, total_s=one.total_s + other.total_s)

    return _summed(costs, lambda cost: (cost.method, cost.rows, cost.depth), plus)


def _summed(
    costs: Iterable[_Cost],
    shape_of: Callable[[_Cost], _Shape],
    plus: Callable[[_Cost, _Cost], _Cost],
) -> tuple[_Cost, ...]:
    """Add up what shares a shape; in the order of shapes."""
    found: dict[_Shape, _Cost] = {}
    for cost in costs:
        shape = shape_of(cost)
        found[shape] = plus(found[shape], cost) if shape in found else cost
    return tuple(found[shape] for shape in sorted(found))
