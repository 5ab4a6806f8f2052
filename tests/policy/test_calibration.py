"""Journal records of an idle engine as costs, and what the cost model makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from collectors.records import (
    OFF,
    DecodeStep,
    DraftCost,
    Method,
    Plan,
    Route,
    Setting,
    StepGroup,
    StepOutcome,
)
from policy.calibration import CalibratedCosts, context_bucket, costs_of
from policy.cost import CostModel
from policy.recommend import recommend
from policy.timings import CALIBRATED_COUNT
from policy.types import Advice, Recommendation, StepCost, Window
from tests.policy.worlds import END_S, draft_costs, mix, observation, step_costs, window

K3 = Setting(method=Method.DRAFT_MODEL, k=3)


def step(seq: int, verify_s: float = 0.02, prefill: int = 0, draft_s: float = 0.004) -> DecodeStep:
    groups = (
        StepGroup(
            route="calibration",
            setting=K3,
            is_shadow=True,
            tokens=2,
            outcomes=(StepOutcome(drafted=3, accepted=0, rows=2),),
        ),
    )
    cost = DraftCost(method=K3.method, rows=2, tokens=6, depth=3, seconds=draft_s)
    return DecodeStep(
        seq=seq,
        at=float(seq),
        plan_digest="",
        running=2,
        waiting=0,
        positions=8,
        prefill_tokens=prefill,
        context_tokens=100,
        verify_s=verify_s,
        sample_s=0.001,
        other_s=0.0,
        drafts=() if prefill else (cost,),
        groups=() if prefill else groups,
    )


def test_steps_with_prefill_and_disturbed_ones_are_left_out() -> None:
    steps = [step(1, prefill=8), *(step(seq) for seq in range(2, 8)), step(8, verify_s=0.5)]

    costs = costs_of(steps)

    (cost,) = costs.steps
    assert (cost.rows, cost.positions, cost.context_tokens, cost.steps) == (2, 8, 96, 6)
    assert cost.total_s == pytest.approx(6 * 0.021)
    assert costs.num_steps == 6


def test_the_first_round_after_a_prompt_is_a_catch_up_and_no_draft_cost() -> None:
    steps = [step(1, prefill=8), step(2, draft_s=0.03), step(3), step(4)]

    costs = costs_of(steps)

    (draft,) = costs.drafts
    assert (draft.method, draft.rows, draft.depth, draft.rounds) == (K3.method, 2, 3, 2)
    assert draft.total_s == pytest.approx(0.008)
    (first,) = costs.catch_ups
    assert (first.context_tokens, first.rounds, first.total_s) == (100, 1, 0.03)


def test_equal_shapes_of_two_parts_add_up() -> None:
    part = costs_of([step(seq) for seq in range(1, 7)])
    both = part.plus(part)
    assert [cost.steps for cost in both.steps] == [12]
    assert [draft.rounds for draft in both.drafts] == [12]
    assert both.steps[0].total_s == pytest.approx(2 * part.steps[0].total_s)
    assert CalibratedCosts().plus(part) == part


@pytest.mark.parametrize(("context", "middle"), [(0, 0), (1, 1), (3, 3), (64, 96), (100, 96)])
def test_contexts_are_filed_as_the_store_files_them(context: int, middle: int) -> None:
    assert context_bucket(context) == middle


def cost_of(positions: int, seconds: float, steps: int = 20, context: int = 96) -> StepCost:
    return StepCost(
        rows=2,
        positions=positions,
        context_tokens=context,
        steps=steps,
        total_s=steps * seconds,
        total_square_s2=steps * seconds**2,
    )


def model_of(*windows: Window) -> CostModel:
    model = CostModel.empty(half_life_s=10.0)
    for each in windows:
        model = model.updated(each)
    return model


def calibrated(*costs: StepCost) -> Window:
    return CalibratedCosts(steps=costs).window(0.0)


def traffic(end_s: float, *costs: StepCost) -> Window:
    return Window(start_s=end_s - 1, end_s=end_s, step_costs=costs)


def seconds(model: CostModel, positions: int, context: float = 96) -> float:
    return float(model.step_table_s(2, np.array([float(positions)]), context)[0])


def test_what_traffic_measured_counts_before_the_calibration() -> None:
    model = model_of(calibrated(cost_of(2, 0.02), cost_of(8, 0.03)), traffic(1.0, cost_of(8, 0.03)))
    assert model.calibration_ratio == 1.0
    assert seconds(model, 2) == pytest.approx(0.02)
    slower = model_of(
        calibrated(cost_of(2, 0.02), cost_of(8, 0.03)), traffic(1.0, cost_of(8, 0.06, steps=2000))
    )
    assert seconds(slower, 8) == pytest.approx(0.06)
    assert seconds(slower, 2) == pytest.approx(0.04)


def test_calibrated_times_are_put_to_the_speed_that_traffic_shows() -> None:
    model = model_of(
        calibrated(cost_of(2, 0.02), cost_of(4, 0.03), cost_of(8, 0.04)),
        traffic(1.0, cost_of(2, 0.04), cost_of(4, 0.06, context=100)),
    )
    assert model.calibration_ratio == pytest.approx(2.0)
    assert seconds(model, 8) == pytest.approx(0.08)
    assert model.num_shapes(1, 4) == (1, 3)
    assert model.num_shapes(3, 4) == (0, 0)
    assert seconds(model, 2) == pytest.approx(0.04)


def test_a_few_steps_of_traffic_do_not_count_before_it() -> None:
    model = model_of(calibrated(cost_of(8, 0.03)), traffic(1.0, cost_of(8, 0.05, steps=2)))
    assert seconds(model, 8) == pytest.approx(0.03)


def test_a_calibration_does_not_fade_and_weighs_no_more_than_it_may() -> None:
    model = model_of(calibrated(cost_of(8, 0.03, steps=500)), traffic(1e6, cost_of(2, 0.02)))
    assert model.calibration_ratio == 1.0
    assert seconds(model, 8) == pytest.approx(0.03)
    timing = model.measured(2, 8, 96)
    assert timing is not None
    assert timing.count == CALIBRATED_COUNT


def test_a_newer_calibration_takes_the_place_of_the_one_before() -> None:
    model = model_of(calibrated(cost_of(8, 0.03)), calibrated(cost_of(8, 0.04)))
    assert seconds(model, 8) == pytest.approx(0.04)


def test_impossible_calibrated_costs_are_named() -> None:
    model = model_of(calibrated(cost_of(1, 0.03)))
    assert "no such shape" in model.ignored[0]
    assert model.calibrated_steps == {}


def test_a_recommendation_needs_no_traffic_of_a_shape_that_was_calibrated_and_says_so() -> None:
    steps = step_costs(lambda rows, positions: 0.01 + 0.001 * (positions - 1), 1, range(4))
    drafts = draft_costs(lambda rows, depth: 0.0, (1,), (1, 2, 3))
    served = window(
        [observation(K3, (0.8, 0.5, 0.2)), observation(OFF, ())],
        steps[:1],
        [],
        [mix({"chat": 1.0})],
    )
    calibration = CalibratedCosts(steps=tuple(steps), drafts=tuple(drafts)).window(served.start_s)

    (without,) = advised([served])
    (with_it,) = advised([calibration, served])

    assert without.advice is not Advice.CHANGE
    assert with_it.advice is Advice.CHANGE
    said = "3 of 4 step times come from the calibration, put to 1.00 times what it measured."
    assert said in with_it.reasons
    assert not any("calibration" in reason for reason in without.reasons)


def advised(windows: list[Window]) -> tuple[Recommendation, ...]:
    return recommend(
        windows,
        [Route(name="chat")],
        Plan(),
        [K3],
        now_s=END_S,
        generator=np.random.default_rng(0),
    )
