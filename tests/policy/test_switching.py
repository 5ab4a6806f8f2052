"""What changes cost is learned from the time that no step accounts for."""

import math
from dataclasses import replace

import numpy as np
import pytest

from collectors.records import OFF, Method, Setting, load_level_of
from policy.calibration import CalibratedCosts
from policy.switching import PRIOR_WIDTH_S, SwitchCost
from policy.timings import CatchUp
from policy.types import LoadMix, StepCost, Window
from tests.policy.worlds import END_S, draft, observation

ROUTES = ("chat", "code")
LOSS_S = 0.2


def window(number: int, settings: dict[str, Setting], lost_s: float = 0.0) -> Window:
    """A second of two routes with as many passes each, of which some time was lost."""
    rows = dict.fromkeys(settings, 4.0)
    return Window(
        start_s=END_S + number - 1,
        end_s=END_S + number,
        observations=tuple(
            observation(setting, [0.5] * setting.k, route=route, passes=200)
            for route, setting in settings.items()
        ),
        step_costs=(
            StepCost(
                rows=8,
                positions=8,
                context_tokens=4096,
                steps=50,
                total_s=1.0 - lost_s,
                total_square_s2=0.02,
            ),
        ),
        mixes=(
            LoadMix(
                load=load_level_of(8),
                steps=50,
                rows_by_route=rows,
                context_tokens=4096.0,
                tokens=400,
                busy_s=1.0,
            ),
        ),
    )


def both(setting: Setting) -> dict[str, Setting]:
    return dict.fromkeys(ROUTES, setting)


def taught(
    changes: int, *, noise: float = 0.0, loss_s: float = LOSS_S, seed: int = 0
) -> SwitchCost:
    """Five windows a change, each change of one route of two, noise in every window."""
    cost, generator = SwitchCost(), np.random.default_rng(seed)
    for number in range(5 * changes):
        settings = {"chat": draft(1 + (number // 5) % 2), "code": OFF}
        is_change = number % 5 == 0 and number > 0
        usual = noise * abs(generator.standard_normal())
        cost.observe(window(number, settings, usual + 0.5 * loss_s * is_change))
    return cost


def test_nothing_is_lost_before_any_change_was_seen() -> None:
    cost = SwitchCost()
    for number in range(10):
        cost.observe(window(number, both(OFF)))
    assert cost.loss.mean == 0
    assert cost.loss.high == pytest.approx(1.645 * PRIOR_WIDTH_S, rel=1e-3)
    assert cost.lost_s(OFF, draft(3), 1.0, 4096.0) == 0


def test_the_loss_of_a_change_of_all_rows_is_learned_from_changes_of_half() -> None:
    loss = taught(20).loss
    assert loss.mean == pytest.approx(LOSS_S, rel=0.03)
    assert loss.low < loss.mean < loss.high


def test_time_that_is_always_missing_is_not_laid_to_changes() -> None:
    """A tenth of every window goes with prompts; changes lose nothing."""
    held = 0
    for seed in range(20):
        loss = taught(20, noise=0.1, loss_s=0.0, seed=seed).loss
        held += loss.low == 0 and loss.mean < 0.05
    assert held >= 17


def test_without_a_loss_there_is_no_charge() -> None:
    cost = taught(20, loss_s=0.0)
    assert cost.loss.mean < 1e-9
    assert cost.lost_s(OFF, draft(3), 1.0, 0.0) < 1e-9


def test_a_setting_that_stays_is_no_change_and_costs_nothing() -> None:
    cost = taught(20)
    assert cost.lost_s(draft(3), draft(3), 1.0, 4096.0) == 0
    assert cost.lost_s(draft(3), draft(2), 0.25, 4096.0) == pytest.approx(LOSS_S / 4, rel=0.03)


def test_settings_hold_for_as_long_as_they_have_at_a_load_level() -> None:
    restless, steady = taught(60), SwitchCost()
    for number in range(300):
        steady.observe(window(number, both(draft(3))))
    lone, busy = load_level_of(1), load_level_of(8)
    assert restless.hold_windows("chat", lone) == pytest.approx(5, rel=0.2)
    assert steady.hold_windows("chat", lone) > 300
    for cost in (restless, steady):
        assert cost.hold_windows("chat", busy) == pytest.approx(30)
        assert cost.hold_windows("never seen", lone) == pytest.approx(30)


def test_a_drafter_reads_the_contexts_of_the_rows_that_change_to_it() -> None:
    cost = SwitchCost()
    seen = CatchUp(method=Method.DRAFT_MODEL, context_tokens=1000, rounds=2, total_s=0.05)
    calibrated = CalibratedCosts(catch_ups=(seen,))
    cost.observe(calibrated.window(END_S))
    assert cost.lost_s(OFF, draft(3), 0.5, 4000.0) == pytest.approx(0.1)
    assert cost.lost_s(draft(1), draft(3), 0.5, 4000.0) == 0
    assert cost.lost_s(draft(3), OFF, 0.5, 4000.0) == 0


@pytest.mark.parametrize(
    "broken",
    [
        {"mixes": ()},
        {"step_costs": ()},
        {"end_s": math.nan},
        {"start_s": END_S + 9},
        {"observations": ()},
    ],
)
def test_windows_that_tell_nothing_change_no_belief(broken: dict[str, object]) -> None:
    cost = taught(20)
    before = cost.loss
    cost.observe(replace(window(101, both(OFF)), **broken))  # type: ignore[arg-type]
    assert cost.loss.mean == pytest.approx(before.mean, rel=0.2)
    assert math.isfinite(cost.loss.high)


def test_reference_steps_are_no_change_of_setting() -> None:
    plain, among = SwitchCost(), SwitchCost()
    compared = replace(observation(OFF, [], route="chat", passes=4), reference_passes=4)
    for number in range(10):
        seen = window(number, both(draft(2)))
        plain.observe(seen)
        extra = (compared,) if number % 2 else ()
        among.observe(replace(seen, observations=(*seen.observations, *extra)))
    load = seen.observations[0].load
    assert among.hold_windows("chat", load) == plain.hold_windows("chat", load)
    assert among.loss == plain.loss


def test_shadow_steps_beside_the_mix_are_no_negative_loss() -> None:
    cost = taught(20)
    before = cost.loss
    seen = window(101, both(draft(2)))
    cost.observe(replace(seen, mixes=(replace(seen.mixes[0], busy_s=0.5),)))
    assert cost.loss == before
