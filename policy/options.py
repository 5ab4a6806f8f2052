"""How cautious the policy is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policy.errors import InvalidInput


class Objective(StrEnum):
    """What a plan is to gain, in an operator's words."""

    THROUGHPUT = "throughput"
    BALANCED = "balanced"
    LATENCY = "latency"

    @property
    def most_slowdown(self) -> float:
        """How much longer a route may take per token than with speculation off, for the others.

        Routes share steps, so that drafts of one slow the others down.
        """
        return {"throughput": math.inf, "balanced": 0.1, "latency": 0.0}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendOptions:
    """The knobs of a recommendation.

    Attributes:
        min_gain: gain that a change must bring, 0.03 being 3 %.
        objective: what to gain.
        half_life_s: time in which acceptance counts lose half their weight, in seconds.
        half_life_by_route: other half-lives, by route.
        cost_half_life_s: the same for step and draft times.
        min_passes: passes of a draft position from which there is evidence.
        min_steps: steps at a load level from which it gets an answer.
        max_age_s: age of the newest window from which there is no answer, in seconds.
        max_burn_ratio: share of requests beyond their limits from which nothing unproven is tried.
        num_draws: draws from the posterior behind each interval.
        least_over_off: what the low end of a plan must keep of the goodput of off.
        exploring_share: share of a route's live tokens that a trial may take.
        lasting_windows: windows for which a plan is thought to stay in force.
        granted_changes: changes an entry of the plan may see at once.
        seconds_per_change: time in which an entry earns another change.
        clean_pool: True where routes may be served from a pool without speculation.
        off_tax_ratio: what a plain step costs more here than there, 0.06 being 6 %; None if that
            is unknown.
        error_scale: factor on every interval, 1 or more, that past predictions have earned.
    """

    min_gain: float = 0.03
    objective: Objective = Objective.THROUGHPUT
    half_life_s: float = 1800.0
    half_life_by_route: Mapping[str, float] = field(default_factory=dict)
    cost_half_life_s: float = 86_400.0
    min_passes: float = 30.0
    min_steps: float = 20.0
    max_age_s: float = 3600.0
    max_burn_ratio: float = 0.1
    num_draws: int = 400
    least_over_off: float = 0.985
    exploring_share: float = 0.02
    lasting_windows: int = 30
    granted_changes: float = 4.0
    seconds_per_change: float = 3600.0
    clean_pool: bool = False
    off_tax_ratio: float | None = None
    error_scale: float = 1.0

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        if not 0 <= self.min_gain < math.inf:
            raise InvalidInput(f"min_gain must be 0 or more, got {self.min_gain}")
        if self.num_draws < 2:
            raise InvalidInput(f"num_draws must be 2 or more, got {self.num_draws}")
        if not self.seconds_per_change > 0:
            raise InvalidInput(f"seconds_per_change must be above 0, got {self.seconds_per_change}")
        if self.off_tax_ratio is not None and not 0 <= self.off_tax_ratio < math.inf:
            raise InvalidInput(f"off_tax_ratio must be 0 or more, got {self.off_tax_ratio}")
        if not 1 <= self.error_scale < math.inf:
            raise InvalidInput(f"error_scale must be 1 or more, got {self.error_scale}")

    def as_control(self) -> ControlOptions:
        """Return what the choice among plans needs to know of them."""
        return ControlOptions(
            min_gain=self.min_gain, num_draws=self.num_draws, least_over_off=self.least_over_off
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOptions:
    """The knobs of the control loop.

    Attributes:
        min_gain: gain that a change of the plan must bring.
        half_life_s: time in which acceptance counts lose half their weight, in seconds, where no
            change was found.
        cost_half_life_s: the same for step and draft times.
        min_passes: passes of a draft position from which there is evidence.
        num_draws: draws from the posterior behind each decision.
        least_over_off: what a plan's low end must keep of the goodput of off.
        least_exploring_over_off: the same for the few windows that may risk more to learn.
        exploring_share: share of tokens to explore with.
        most_exploring: share of a batch that explores at once, unless one route is larger.
        risky_share: share of windows that may go wrong by risking more.
        stale_windows: windows without a try after which what a method did on a route is doubted.
        trial_windows: windows for which a better arm, once found, is thought to be used.
        granted_windows: windows whose budget is granted at the start.
        granted_edits: changes an entry of the plan may see at once.
        seconds_per_edit: time in which an entry earns another change; a try changes it there and
            back, so tries are earned half as often.
        most_windows_per_cost_fit: windows between two fits of step times, later on.
    """

    min_gain: float = 0.01
    half_life_s: float = 3600.0
    cost_half_life_s: float = 86_400.0
    min_passes: float = 1.0
    num_draws: int = 64
    least_over_off: float = 0.985
    least_exploring_over_off: float = 0.85
    exploring_share: float = 0.02
    most_exploring: float = 0.4
    risky_share: float = 0.005
    stale_windows: float = 120.0
    trial_windows: float = 30.0
    granted_windows: int = 800
    granted_edits: float = 4.0
    seconds_per_edit: float = 30.0
    most_windows_per_cost_fit: int = 16

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        if not 0 <= self.min_gain < math.inf:
            raise InvalidInput(f"min_gain must be 0 or more, got {self.min_gain}")
        if self.num_draws < 2:
            raise InvalidInput(f"num_draws must be 2 or more, got {self.num_draws}")
        if not self.seconds_per_edit > 0:
            raise InvalidInput(f"seconds_per_edit must be above 0, got {self.seconds_per_edit}")

    def windows_per_cost_fit(self, num_windows: int) -> int:
        """Return after how many windows step times are fitted again: ever more of them."""
        return min(self.most_windows_per_cost_fit, 1 + num_windows // 8)
