"""The control loop learns from nothing, keeps to its bounds, and survives any input."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.records import OFF, Setting, load_level_of
from policy.acceptance import AcceptanceModel
from policy.belief import Belief
from policy.controller import Controller
from policy.cost import CostModel
from policy.knowledge import Knowledge, Mix, Venture
from policy.learning import Learner
from policy.options import ControlOptions
from policy.plan_choice import PlanChoice
from policy.plan_evaluation import PlanEvaluation
from policy.scenes import shared_batch
from policy.simulate.engine import ARMS, Choice, Counts, Engine, Turn
from policy.simulate.match import prediction_of
from policy.simulate.ours import Spectuner, window_of
from policy.simulate.peers.base import Fixed
from policy.simulate.peers.oracles import PerRouteOracle
from policy.simulate.profiles import profile_named
from policy.simulate.run import Trace, run
from policy.simulate.worlds import ROUTES as WORLD_ROUTES
from policy.simulate.worlds import draw_world
from policy.switching import Charge
from policy.types import DraftObservation, Evidence, LoadMix, Observation, StepCost, Window
from tests.policy.worlds import END_S, draft, draft_costs, observation, step_costs, window

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


def chosen(loss_s: float, hold_windows: float) -> tuple[PlanChoice, np.ndarray]:  # type: ignore[type-arg]
    """A batch of three routes whose drafts of three pay, where changing one costs a third."""
    learner = Learner(AcceptanceModel.empty(), CostModel.empty())
    known = window(
        [observation(draft(3), [0.8, 0.6, 0.4], route=name) for name in ROUTES],
        step_costs(lambda rows, positions: 0.01 + 1e-5 * positions, 12, range(8), 4096),
        draft_costs(lambda rows, depth: 1e-4 * depth, (4, 12), range(1, 8)),
    )
    learner.observe(known)
    learner.price(known)
    knowledge = Knowledge(
        acceptance=learner.acceptance,
        cost=learner.cost,
        arms=(OFF, draft(1), draft(3)),
        min_passes=1.0,
        posteriors={},
        venture=Venture(),
    )
    batch = shared_batch(knowledge, [mix_of(dict.fromkeys(ROUTES, 4.0))], {})
    assert batch is not None
    lost = np.full((3, 3), loss_s / 3)
    lost[:, 0] = 0.0
    charge = Charge(lost_windows=lost, hold_windows=np.full(3, hold_windows))
    belief = Belief(learner.regimes, knowledge, batch, 4096.0)
    generator = np.random.default_rng(0)
    options = ControlOptions()
    evaluation = PlanEvaluation(batch, belief, generator, options.num_draws)
    found = PlanChoice(evaluation, options, charge=charge)
    return found, found.improved(np.zeros(3, dtype=np.intp), set())


def test_a_change_is_made_only_where_it_earns_what_it_loses() -> None:
    off = np.zeros(3, dtype=np.intp)
    cheap, target = chosen(0.2, hold_windows=30.0)
    assert target.tolist() == [2, 2, 2]
    assert cheap.moved(off, target).tolist() == [2, 2, 2]
    dear, _ = chosen(20.0, hold_windows=10.0)
    assert dear.moved(off, target).tolist() == [0, 0, 0]
    lasting, _ = chosen(20.0, hold_windows=200.0)
    assert lasting.moved(off, target).tolist() == [2, 2, 2]


def test_what_a_change_loses_is_missing_from_the_goodput_predicted_for_its_window() -> None:
    found, target = chosen(0.2, hold_windows=30.0)
    free, _ = chosen(0.0, hold_windows=30.0)
    assert found.goodput(target).mean == pytest.approx(0.8 * free.goodput(target).mean)


def test_a_risk_is_not_laid_to_a_plan_for_what_going_to_it_loses() -> None:
    found, target = chosen(0.2, hold_windows=30.0)
    free, _ = chosen(0.0, hold_windows=30.0)
    assert found.least_goodput(target) == pytest.approx(0.8 * free.least_goodput(target))


def test_a_try_must_bring_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the rows would bring three windows of the batch: nine of its own rows."""
    found, _ = chosen(0.0, hold_windows=30.0)
    off, is_open = np.zeros(3, dtype=np.intp), np.ones(3, dtype=np.bool_)
    base = float(found.goodput(off).mean)
    worth = np.full((3, 3), -np.inf)
    worth[1, 2] = 3.0 * base
    monkeypatch.setattr(found, "_worth_trying", lambda best: worth)
    assert found.explored(off, is_open, 8.9).tolist() == [0, 2, 0]
    assert found.explored(off, is_open, 9.1).tolist() == [0, 0, 0]


def test_times_are_learned_at_once_while_a_plan_is_held_back_for_them() -> None:
    steps = step_costs(lambda rows, positions: 0.01, 12, range(8), 4096)
    for is_held in (False, True):
        loop = controller()
        for _ in range(300):
            loop.observe(window(costs=steps))
        while loop._state.unpriced:
            loop.observe(window(costs=steps))
        loop._state.is_held = is_held
        loop.observe(window(costs=steps))
        assert len(loop._state.unpriced) == (0 if is_held else 1)


def test_what_runs_already_costs_nothing_to_keep() -> None:
    dear, target = chosen(20.0, hold_windows=10.0)
    assert dear.moved(target, target).tolist() == target.tolist()


def test_the_loss_of_switching_is_learned_where_there_is_one() -> None:
    world = draw_world(5, ("W2", "W5"), 80)
    for profile, loss_s in (("bs-cliff", 0.2), ("gpu", 0.0)):
        learner = Learner(AcceptanceModel.empty(), CostModel.empty())
        ours = Spectuner(5)
        run(
            Engine(world=world, profile=profile_named(profile)),
            Watched(ours, learner),
            5,
            lambda: 0.0,
        )
        assert learner.switching.loss.mean == pytest.approx(loss_s, rel=0.05, abs=1e-6)


class Watched:
    """The control loop with a learner that looks on."""

    name = "watched"

    def __init__(self, ours: Spectuner, learner: Learner) -> None:
        self._ours = ours
        self._learner = learner

    def choose(self, turn: Turn) -> Choice:
        return self._ours.choose(turn)

    def observe(self, counts: Counts) -> None:
        self._ours.observe(counts)
        settings_ = [self._ours.decisions[-1].settings.get(name, OFF) for name in WORLD_ROUTES]
        self._learner.observe(window_of(counts, settings_))


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
    for number, one in enumerate(seen):
        loop.observe(sound_window(number))
        loop.observe(one)
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


def test_a_pinned_route_runs_what_it_is_pinned_to_whatever_is_known() -> None:
    loop = controller()
    for number in range(6):
        loop.observe(sound_window(number))
    mix = mix_of({"chat": 4.0, "code": 4.0})
    free = loop.decide(mix, END_S + 10)
    pinned = {"chat": next(arm for arm in ARMS if arm not in (OFF, free.settings["chat"]))}

    decision = loop.decide(mix, END_S + 11, pinned=pinned)

    assert decision.settings["chat"] == pinned["chat"]
    assert "chat" not in decision.exploring


def test_a_route_runs_only_what_it_is_allowed_or_off() -> None:
    engine = Engine(world=draw_world(1, ("W2", "W5"), 60), profile=profile_named("gpu"))
    ours = Spectuner(1)
    run(engine, ours, 1, lambda: 0.0)
    loop, rows = ours._controller, dict.fromkeys(WORLD_ROUTES, 2.0)
    free = loop.decide(mix_of(rows), END_S).settings
    drafting = next(name for name, setting in free.items() if setting != OFF)

    held = loop.decide(mix_of(rows), END_S + 1, allowed={drafting: frozenset()})
    assert held.settings[drafting] == OFF

    unknown = replace(ARMS[1], k=16)
    assert unknown not in ARMS
    kept = loop.decide(mix_of(rows), END_S + 2, pinned={drafting: unknown})
    assert kept.settings[drafting] == unknown
