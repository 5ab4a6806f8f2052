"""The control loop learns from nothing, keeps to its bounds, and survives any input."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.records import OFF, Setting, load_level_of
from policy.controller import Controller
from policy.knowledge import Mix
from policy.options import ControlOptions
from policy.simulate.engine import ARMS, Engine
from policy.simulate.match import prediction_of
from policy.simulate.ours import Spectuner
from policy.simulate.peers.base import Fixed
from policy.simulate.peers.oracles import PerRouteOracle
from policy.simulate.profiles import profile_named
from policy.simulate.run import Trace, run
from policy.simulate.worlds import draw_world
from policy.types import DraftObservation, Evidence, LoadMix, Observation, StepCost, Window
from tests.policy.worlds import END_S

ROUTES = ("chat", "code", "other")


def mix_of(rows: dict[str, float]) -> Mix:
    total = sum(rows.values())
    load = load_level_of(round(total)) if 0 <= total < 1e9 else load_level_of(1)
    return Mix(load=load, steps=1.0, rows_by_route=rows, context_tokens=4096.0)


def controller(seed: int = 0, **knobs: float) -> Controller:
    return Controller(ARMS, np.random.default_rng(seed), ControlOptions(**knobs))  # type: ignore[arg-type]


def traces(engine: Engine, ours: Spectuner, seed: int) -> tuple[Trace, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    clock = iter(range(10**9))

    def tick() -> float:
        return float(next(clock))

    best = run(engine, PerRouteOracle(engine), seed, tick).goodput
    off = run(engine, Fixed(OFF), seed, tick).goodput
    return run(engine, ours, seed, tick), best, off


def test_without_any_knowledge_everything_is_off() -> None:
    decision = controller().decide(mix_of({"chat": 4.0, "code": 2.0}), END_S)
    assert set(decision.settings.values()) == {OFF}
    assert decision.goodput is None


def test_it_finds_its_way_from_nothing_and_stays_above_off() -> None:
    engine = Engine(world=draw_world(1, ("W2", "W5"), 120), profile=profile_named("gpu"))
    ours = Spectuner(1)
    got, best, off = traces(engine, ours, 1)
    assert got.goodput[40:].sum() / best[40:].sum() > 0.93
    assert np.mean(got.goodput < 0.98 * off) < 0.02
    rows = engine.world.rows
    names = ("code", "chat", "extract", "creative")
    tried = [[name in made.exploring for name in names] for made in ours.decisions]
    mean_rows = rows.sum() / len(rows)
    assert (rows * np.array(tried)).sum() <= 0.02 * 1000 * mean_rows * 1.5


def test_on_steady_load_it_predicts_what_it_gets_and_leaves_the_plan_alone() -> None:
    engine = Engine(world=draw_world(2, ("W1",), 240), profile=profile_named("gpu"))
    ours = Spectuner(2)
    got, best, _ = traces(engine, ours, 2)
    said = prediction_of(got, ours.decisions)
    assert got.goodput[60:].sum() / best[60:].sum() > 0.9
    assert got.moved[60:].mean() < 2 / 30
    assert np.median(said.errors) < 0.06


def test_a_profile_on_which_nothing_pays_is_left_off() -> None:
    world = draw_world(3, ("W1",), 150)
    hopeless = world.acceptance * 0.02
    engine = Engine(
        world=type(world)(
            seed=3,
            rows=world.rows,
            context_tokens=world.context_tokens,
            easy_share=world.easy_share,
            acceptance=hopeless,
            change_points=(),
        ),
        profile=profile_named("cpu"),
    )
    ours = Spectuner(3)
    got, _, off = traces(engine, ours, 3)
    assert np.all(got.goodput[100:] >= 0.97 * off[100:])
    assert np.mean(got.goodput < 0.98 * off) < 0.15


def test_a_burst_beyond_all_that_was_measured_harms_one_window_at_most() -> None:
    """40 windows of 24 rows, then 100: the step time bends at 128 positions, which is not known."""
    world = draw_world(0, ("W1", "W5"), 80)
    rows = np.tile([6, 6, 6, 6], (80, 1))
    rows[40:60] = 25
    for seed in range(3):
        engine = Engine(world=replace(world, rows=rows), profile=profile_named("gpu"))
        got, _, off = traces(engine, Spectuner(seed), seed)
        assert np.sum(got.goodput < 0.98 * off) <= 1
        assert got.goodput[44:60].sum() > 1.03 * off[44:60].sum()


def numbers() -> st.SearchStrategy[int]:
    return st.sampled_from([-1, 0, 1, 30, 1000, 10**9])


def seconds() -> st.SearchStrategy[float]:
    return st.sampled_from([-1.0, 0.0, 1e-4, 0.02, 1.0, 1e12, math.inf, math.nan])


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    setting: Setting = draw(st.sampled_from(ARMS))
    counts = tuple(draw(st.lists(numbers(), max_size=8)))
    return Observation(
        route=draw(st.sampled_from(ROUTES)),
        setting=setting,
        load=load_level_of(draw(st.sampled_from([1, 8, 100]))),
        evidence=draw(st.sampled_from(list(Evidence))),
        start_s=END_S,
        end_s=END_S + 1,
        passes=draw(numbers()),
        verify_passes=draw(numbers()),
        drafted=draw(numbers()),
        accepted=draw(numbers()),
        tokens=draw(numbers()),
        attempts=counts,
        accepts=tuple(draw(st.permutations(counts))),
    )


@st.composite
def windows(draw: st.DrawFn) -> Window:
    end_s = draw(st.sampled_from([END_S, END_S + 1, END_S - 9e9, math.nan, math.inf]))
    rows = draw(st.sampled_from([0, 1, 8, 10**9]))
    return Window(
        start_s=END_S,
        end_s=end_s,
        observations=tuple(draw(st.lists(observations(), max_size=4))),
        step_costs=tuple(
            StepCost(
                rows=rows,
                positions=draw(numbers()),
                context_tokens=4096,
                steps=draw(numbers()),
                total_s=draw(seconds()),
                total_square_s2=draw(seconds()),
            )
            for _ in range(draw(st.integers(0, 5)))
        ),
        draft_costs=(
            DraftObservation(
                method=draw(st.sampled_from(ARMS)).method,
                rows=rows,
                depth=draw(numbers()),
                rounds=draw(numbers()),
                total_s=draw(seconds()),
            ),
        ),
        mixes=(
            LoadMix(
                load=load_level_of(8),
                steps=draw(numbers()),
                rows_by_route={"chat": draw(seconds())},
                context_tokens=4096.0,
                tokens=0,
                busy_s=0.0,
            ),
        ),
    )


def sound_window(number: int) -> Window:
    """Plain steps of eight and ten rows, so that something is known."""
    rows = 8 + 2 * (number % 2)
    return Window(
        start_s=END_S,
        end_s=END_S + number,
        step_costs=(
            StepCost(
                rows=rows,
                positions=rows,
                context_tokens=4096,
                steps=50,
                total_s=1.0,
                total_square_s2=0.02,
            ),
        ),
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@example(seen=[], rows={"new": 4.0, "newer": 120.0, "newest": 1.0})
@example(seen=[Window(start_s=END_S, end_s=END_S)] * 3, rows=dict.fromkeys(ROUTES, 0.0))
@given(
    seen=st.lists(windows(), max_size=6),
    rows=st.dictionaries(
        st.sampled_from((*ROUTES, "new")),
        st.sampled_from([-1.0, 0.0, 0.5, 1.0, 4.0, 120.0, 1e12, math.nan, math.inf]),
        max_size=4,
    ),
)
def test_no_input_whatever_yields_a_plan_outside_the_bounds(
    seen: list[Window], rows: dict[str, float]
) -> None:
    loop = controller()
    for number, window in enumerate(seen):
        loop.observe(sound_window(number))
        loop.observe(window)
        loop.decide(mix_of({"chat": 4.0, "code": 4.0}), END_S + number)

    decision = loop.decide(mix_of(rows), END_S + 10)

    assert set(decision.settings) == set(rows)
    assert set(decision.settings.values()) <= set(ARMS)
    assert decision.exploring <= set(rows)
    if decision.goodput is not None:
        bounds = (decision.goodput.low, decision.goodput.mean, decision.goodput.high)
        assert all(math.isfinite(bound) for bound in bounds)
        assert bounds == tuple(sorted(bounds))


@pytest.mark.parametrize("knobs", [{"min_gain": -1.0}, {"num_draws": 1}, {"seconds_per_edit": 0.0}])
def test_options_that_mean_nothing_are_refused(knobs: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(knobs))):
        controller(**knobs)
