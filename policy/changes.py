"""What is recommended for one route at one load level, with the figures that speak for it.

Figures are of the change alone, every other route staying as it is in force: exactly what
approving it does. Ratios are over what is in force: 1.10 is 10 % more.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectors.records import LoadLevel, Setting
from policy.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class JointEffect:
    """What the changes of several routes at one load level bring, approved together.

    Attributes:
        routes: the routes that change, in order of name.
        route_speed: tokens per second of a request of this route, over what is in force.
        engine_total: tokens per second of the engine, over what is in force.
    """

    routes: tuple[str, ...]
    route_speed: Interval
    engine_total: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChange:
    """What is recommended for one route at one load level.

    The figures follow from one another: route_speed = tokens_per_pass / current_tokens_per_pass /
    step_ratio, engine_total = (1 - token_share + token_share * tokens_per_pass /
    current_tokens_per_pass) / step_ratio, and over_off is at most tokens_per_pass.

    Attributes:
        load: the load level.
        current: Setting now in force.
        proposed: Setting recommended; equal to current where nothing should change.
        tokens_per_pass: predicted tokens per target pass at the proposed Setting.
        current_tokens_per_pass: the same at the current one.
        step_ratio: time of a step with the change over that without it, reading prompts included.
        token_share: the route's share of the engine's tokens in force, 0 to 1.
        route_speed: tokens per second of a request of the route, proposed over in force.
        engine_total: tokens per second of the whole engine, proposed over in force.
        over_off: the route's speed with the change over that with speculation off on all routes.
        runner_up: second best Setting and its engine total over what is in force; None where there
            is one arm only.
        reason: one sentence.
        runner_up_reason: why the runner-up is not proposed; None where there is none.
        lost_s: seconds of the batch's time that the change itself is expected to lose, once.
        goodput: predicted tokens per second of steps that read no prompt, with the change.
        joint: what all changes at this load level bring together; None where no other route
            changes.
        needs_set: True where the change pays only if the other routes' changes are approved too;
            where it was never timed alone, its figures are those of the set.
    """

    load: LoadLevel
    current: Setting
    proposed: Setting
    tokens_per_pass: Interval
    current_tokens_per_pass: float
    step_ratio: Interval
    token_share: float
    route_speed: Interval
    engine_total: Interval
    over_off: Interval
    runner_up: tuple[Setting, float] | None
    reason: str
    runner_up_reason: str | None = None
    lost_s: float = 0.0
    goodput: Interval
    joint: JointEffect | None = None
    needs_set: bool = False
