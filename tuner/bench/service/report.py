"""The result of `spectuner bench service`: figures as JSON and lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from policy.types import Interval
from tuner.bench.service.churn import share
from tuner.bench.service.comparing import Comparison, LevelFigures, compare
from tuner.bench.service.course import Run
from tuner.bench.service.options import BEST_FIXED, OFF_ARM, REVIEWED, ServiceBenchOptions
from tuner.bench.service.predictions import Outcome, coverage, median_error, outcomes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionReport:
    """One condition.

    Attributes:
        run: what happened.
        comparison: what the arms did.
        outcomes: predictions and what came of them.
    """

    run: Run
    comparison: Comparison
    outcomes: tuple[Outcome, ...]

    @property
    def num_invalid(self) -> int:
        """Blocks left out: no token came, or another plan than the arm's was in force."""
        return sum(not block.is_valid for block in self.run.blocks)

    def to_dict(self) -> dict[str, object]:
        """Return the figures; docs/json.md documents the keys."""
        levels = self.comparison.levels
        surge = [one.to_dict() for one in levels if one.level.is_surge]
        return {
            "name": self.run.condition.value,
            "levels": [one.to_dict() for one in levels if not one.level.is_surge],
            "surge": surge[0] if surge else None,
            "overall": {arm: one.to_dict() for arm, one in self.comparison.overall.items()},
            "plan": self.run.learned.plan.to_dict(),
            "approved": len(self.run.learned.approved),
            "refused": list(self.run.learned.refused),
            "blocks": len(self.run.blocks),
            "blocks_left_out": self.num_invalid,
            "failed_requests": self.run.failed,
            **_calm([self.run], self.outcomes),
        }

    def verdict(self) -> str:
        """Return what holds, in one line."""
        overall = self.comparison.overall
        words = [
            f"{name.replace('_', ' ')} {ratio_words(overall[name])}"
            for name in (REVIEWED, BEST_FIXED)
            if name in overall
        ]
        worst = min(
            (one for one in self.comparison.levels if REVIEWED in one.over_off),
            key=lambda one: one.over_off[REVIEWED].mean,
            default=None,
        )
        if worst is not None:
            ratio = worst.over_off[REVIEWED].mean
            words.append(f"reviewed at its worst level ({worst.level.name}) {ratio:.2f}x")
        return f"{self.run.condition}: {'; '.join(words) or 'nothing could be compared'}"

    def promise_line(self) -> str:
        """Return how predictions fared, in one line."""
        held, error = coverage(self.outcomes), median_error(self.outcomes)
        if held is None or error is None:
            return f"{self.run.condition}: no prediction could be compared with a measured result"
        return (
            f"{self.run.condition}: {held:.0%} of {len(self.outcomes)} predictions held, "
            f"median error {error:.0%}, {self.run.num_impossible} above tokens per pass, "
            f"{self.run.churn.num_reversals} reversals in {self.run.churn.num_answers} answers, "
            f"{self.run.churn.per_hour:.1f} new recommendations a route and hour"
        ).replace("%", " %")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReport:
    """The whole result.

    Attributes:
        conditions: in the order in which they were measured.
    """

    conditions: tuple[ConditionReport, ...]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Predictions of all conditions."""
        return tuple(outcome for one in self.conditions for outcome in one.outcomes)

    def to_dict(self) -> dict[str, object]:
        """Return the figures; docs/json.md documents the keys."""
        return {
            "conditions": [one.to_dict() for one in self.conditions],
            "predictions": [one.to_dict() for one in self.outcomes],
            **_calm([one.run for one in self.conditions], self.outcomes),
        }


def report_on(run: Run, options: ServiceBenchOptions) -> ConditionReport:
    """Turn blocks into figures."""
    names = [arm.name for arm in run.arms]
    fixed = [setting.label for setting in options.fixed if setting.label in names]
    return ConditionReport(
        run=run,
        comparison=compare(run.blocks, names, fixed),
        outcomes=outcomes_of(run.condition, run.promises, run.blocks),
    )


def arm_names(levels: Iterable[LevelFigures]) -> list[str]:
    """Return the arms with figures, off left out, as its ratio to itself says nothing."""
    names = dict.fromkeys(arm for one in levels for arm in one.over_off)
    return [name for name in names if name != OFF_ARM]


def ratio_words(interval: Interval) -> str:
    """Return a ratio with its interval."""
    return f"{interval.mean:.2f}x off ({interval.low:.2f} to {interval.high:.2f})"


def _calm(runs: Sequence[Run], outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Return the figures by which an operator judges predictions and calm."""
    reversals = sum(run.churn.num_reversals for run in runs)
    answers = sum(run.churn.num_answers for run in runs)
    route_hours = sum(run.churn.num_routes * run.churn.hours for run in runs)
    return {
        "coverage": coverage(outcomes),
        "median_error": median_error(outcomes),
        "above_tokens_per_pass": sum(run.num_impossible for run in runs),
        "reversals": share(reversals, answers),
        "recommendations_per_hour": sum(run.churn.num_new for run in runs) / route_hours,
    }
