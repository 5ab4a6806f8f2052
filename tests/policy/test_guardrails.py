"""Each reason to refuse, alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from collectors.records import OFF, AcceptanceRule, load_level_of
from policy.guardrails import Backing, unsafe_reason
from policy.types import Interval
from tests.policy.worlds import draft, load_change


def around(mean: float, width: float = 0.01) -> Interval:
    return Interval(low=mean - width, mean=mean, high=mean + width)


CHANGE = load_change(
    load_level_of(1), OFF, draft(3), tokens_per_pass=around(2.5), over_off=around(1.5)
)
BACKING = Backing(
    depth=3,
    is_live=True,
    is_cost_known=True,
    gain=around(0.5),
    tpot_s=0.01,
    current_tpot_s=0.02,
)


def test_a_change_with_evidence_and_gain_passes() -> None:
    assert unsafe_reason(CHANGE, BACKING) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "name", ["tokens_per_pass", "step_ratio", "route_speed", "engine_total", "over_off"]
)
def test_what_is_no_number_is_refused(name: str, value: float) -> None:
    broken = replace(CHANGE, **{name: Interval(low=0.1, mean=value, high=0.9)})  # type: ignore[arg-type]
    assert "is not a number" in str(unsafe_reason(broken, BACKING))


def test_an_interval_without_its_mean_is_refused() -> None:
    broken = replace(CHANGE, engine_total=Interval(low=1.6, mean=1.5, high=1.9))
    assert "outside its own interval" in str(unsafe_reason(broken, BACKING))


REFUSED = {
    "no step time near": replace(BACKING, is_cost_known=False),
    "never observed or replayed here: not evaluable": replace(BACKING, depth=0),
    "k 3 lies beyond the evidence, which ends at position 2": replace(BACKING, depth=2),
    "below the 60.0% that a change of this route must bring": replace(BACKING, min_gain=0.6),
    "all changes at this load level together": replace(BACKING, joint_gain=around(0.0)),
    "10.0 ms a token, over the route's limit of 5.0 ms": replace(
        BACKING, tpot_limit_s=0.005, current_tpot_s=0.004
    ),
    "push route story over its limit": replace(BACKING, breaks_route="story"),
    "first token would come after 0.9 s": replace(BACKING, ttft_s=0.9, ttft_limit_s=0.5),
    "30% of the route's requests break its limits": replace(BACKING, burn_ratio=0.3, is_live=False),
    "its time per token is not a number": replace(BACKING, tpot_s=math.nan),
}


@pytest.mark.parametrize(("reason", "backing"), REFUSED.items(), ids=list(REFUSED))
def test_each_lack_is_refused_by_name(reason: str, backing: Backing) -> None:
    assert reason in str(unsafe_reason(CHANGE, backing))


def test_a_lossy_rule_is_never_recommended_but_may_be_left_in_force() -> None:
    lossy = replace(draft(3), rule=AcceptanceRule.TYPICAL)
    assert "rule typical is lossy" in str(unsafe_reason(replace(CHANGE, proposed=lossy), BACKING))
    staying = replace(CHANGE, current=lossy, proposed=lossy)
    assert unsafe_reason(staying, BACKING) is None


def test_a_gain_that_may_be_none_is_refused() -> None:
    unsure = replace(BACKING, gain=around(0.05, 0.06))
    assert "not statistically significant: 90 % interval of the engine's tokens -1.0% to" in str(
        unsafe_reason(CHANGE, unsure)
    )


def test_speculation_below_off_is_refused_even_if_better_than_now() -> None:
    slow = replace(CHANGE, current=draft(8))
    below = replace(BACKING, total_over_off=0.9)
    assert "below speculation off, at 0.90 of it" in str(unsafe_reason(slow, below))


def test_off_needs_no_acceptance_evidence() -> None:
    stop = replace(CHANGE, current=draft(8), proposed=OFF)
    assert unsafe_reason(stop, replace(BACKING, depth=0, is_live=False)) is None


def test_staying_is_always_legal() -> None:
    assert unsafe_reason(replace(CHANGE, proposed=OFF), replace(BACKING, depth=0)) is None


def test_a_limit_already_broken_does_not_forbid_what_comes_closer_to_it() -> None:
    assert unsafe_reason(CHANGE, replace(BACKING, tpot_limit_s=0.005)) is None


def test_a_burning_route_may_get_what_was_seen_live() -> None:
    assert unsafe_reason(CHANGE, replace(BACKING, burn_ratio=0.3)) is None
