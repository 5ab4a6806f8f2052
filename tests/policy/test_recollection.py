"""What was learned goes on from where it was, and is what learning anew gives, to the digit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.records import OFF, Plan, Route, load_level_of
from policy.errors import InvalidInput
from policy.options import RecommendOptions
from policy.recollection import Recollection
from policy.recommend import recommend
from policy.types import PlanEdit, Recommendation, Window
from tests.policy.worlds import (
    END_S,
    draft,
    draft_costs,
    lookup,
    mix,
    observation,
    step_costs,
    survival_of,
)

ARMS = (OFF, draft(2), draft(4), lookup(4))
ROUTES = (Route(name="chat"), Route(name="story"))


def drawn_window(number: int, seed: int) -> Window:
    """A minute of two routes, each at an arm and with an acceptance of its own."""
    generator = np.random.default_rng((number, seed))
    seen = tuple(
        observation(
            arm,
            survival_of(generator.uniform(0.3, 0.9, 4).tolist()),
            route=route.name,
            load=load_level_of(2),
            passes=int(generator.integers(20, 400)),
        )
        for route in ROUTES
        for arm in (OFF, ARMS[generator.integers(1, len(ARMS))])
    )
    end_s = END_S - 600 + 60 * number
    scale = float(generator.uniform(0.8, 1.2))
    return Window(
        start_s=end_s - 60,
        end_s=end_s,
        observations=tuple(replace(one, start_s=end_s - 60, end_s=end_s) for one in seen),
        step_costs=tuple(step_costs(lambda _rows, n: scale * (0.02 + 0.001 * n), 2, [0, 4])),
        draft_costs=tuple(draft_costs(lambda _rows, depth: 0.001 * depth, [2], [2, 4])),
        mixes=(mix({"chat": 1.0, "story": 1.0}),),
    )


def said(
    windows: list[Window], options: RecommendOptions, memory: Recollection | None
) -> tuple[Recommendation, ...]:
    return recommend(
        windows,
        ROUTES,
        Plan(default=draft(2)),
        ARMS,
        now_s=END_S,
        generator=np.random.default_rng(3),
        options=options,
        edits=[PlanEdit(route="chat", load=windows[0].mixes[0].load, at_s=END_S - 300)] * 4,
        memory=memory,
    )


STEPS = st.lists(
    st.sampled_from(("grow", "grow", "grow", "slide", "reweigh", "forget faster")),
    min_size=2,
    max_size=5,
)


@settings(max_examples=12, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 10**6))
def test_a_question_asked_with_a_memory_is_answered_as_without(steps: list[str], seed: int):
    memory, options = Recollection(), RecommendOptions(num_draws=16)
    windows = [drawn_window(number, seed) for number in range(3)]
    for step in steps:
        if step == "slide":
            windows = windows[1:]
        if step == "reweigh":
            windows = [drawn_window(0, seed + 1), *windows[1:]]
        if step == "forget faster":
            options = replace(options, half_life_s=options.half_life_s / 2)
        windows = [*windows, drawn_window(len(windows) + 3, seed)]

        assert said(windows, options, memory) == said(windows, options, None)


def test_the_last_window_may_be_another_next_time():
    memory, options = Recollection(), RecommendOptions(num_draws=16)
    closed = [drawn_window(number, 1) for number in range(3)]
    for seed in (2, 3):
        windows = [*closed, drawn_window(9, seed)]
        assert said(windows, options, memory) == said(windows, options, None)


def test_what_a_caller_does_with_its_learner_is_not_remembered():
    memory, options = Recollection(), RecommendOptions()
    windows = [drawn_window(number, 4) for number in range(4)]
    learner, _ = memory.fold(windows, options)
    for number in range(5, 9):
        learner.observe(drawn_window(number, 5))

    assert said(windows, options, memory) == said(windows, options, None)


class Breaking(Window):
    """A window that cannot be folded."""

    def __getattribute__(self, name: str) -> object:
        if name == "observations":
            raise InvalidInput("broken")
        return super().__getattribute__(name)


def test_a_fold_that_failed_in_the_middle_is_begun_anew():
    memory, options = Recollection(), RecommendOptions(num_draws=16)
    windows = [drawn_window(number, 6) for number in range(4)]
    memory.fold(windows[:2], options)
    broken = Breaking(start_s=0.0, end_s=END_S)
    with pytest.raises(InvalidInput):
        memory.fold([*windows[:3], broken, windows[3]], options)

    assert said(windows, options, memory) == said(windows, options, None)
