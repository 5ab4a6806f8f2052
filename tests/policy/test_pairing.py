"""Reference steps are held against the drafting steps beside them, whatever the machine's pace."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from collectors.records import load_level_of
from policy.pairing import MAX_STEPS_AWAY, PairedStep, merged, paired


def step(step_s: float = 0.03, *, rows: int = 2, **changes: object) -> PairedStep:
    plain = PairedStep(
        boot=1,
        load=load_level_of(rows),
        plan_digest="plan",
        rows=rows,
        step_s=step_s,
        tokens=2 * rows,
        is_reference=False,
        is_comparable=True,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def reference(step_s: float = 0.02, **changes: object) -> PairedStep:
    return step(step_s, tokens=2, is_reference=True, **changes)  # type: ignore[arg-type]


def test_a_reference_step_is_paired_with_three_steps_on_each_side() -> None:
    far = step(9.0)
    steps = [far, *[step()] * 3, reference(), *[step(0.05)] * 3, far]
    (found,) = paired(steps)
    assert found.load == load_level_of(2)
    assert (found.pairs, found.drafting_steps, found.drafting_tokens) == (1, 6, 24)
    assert found.sum_log_ratio == pytest.approx(math.log(0.04 / 0.02))
    assert found.sum_square_log_ratio == pytest.approx(math.log(0.04 / 0.02) ** 2)


def test_the_pace_of_the_machine_cancels() -> None:
    def ratio(pace: float) -> float:
        steps = [step(0.03 * pace), reference(0.02 * pace), step(0.03 * pace)]
        return paired(steps)[0].sum_log_ratio

    assert ratio(5.0) == pytest.approx(ratio(1.0))


@pytest.mark.parametrize(
    "other",
    [
        step(9.0, boot=2),
        step(9.0, rows=3),
        step(9.0, plan_digest="another"),
        step(9.0, is_comparable=False),
        step(0.0),
    ],
    ids=["boot", "rows", "plan", "prompt or replay", "no time"],
)
def test_steps_unlike_it_are_passed_over(other: PairedStep) -> None:
    (found,) = paired([step(), other, reference(), other, step()])
    assert found.sum_log_ratio == pytest.approx(math.log(1.5))
    assert found.drafting_steps == 2


def test_reference_steps_are_no_neighbours_of_each_other() -> None:
    assert paired([reference()] * 5) == ()


def test_one_neighbour_is_too_few_and_none_is_fetched_from_far_away() -> None:
    assert paired([step(), reference()]) == ()
    gap = [step(rows=3)] * MAX_STEPS_AWAY
    assert paired([step(), *gap, reference(), *gap, step()]) == ()


def test_levels_are_apart_and_spans_add_up() -> None:
    first = [step(), reference(), step()]
    second = [step(0.06, rows=8), reference(0.02, rows=8), step(0.06, rows=8)]
    few, many = paired([*first, *second, *(replace(one, boot=2) for one in first)])
    assert (few.load, few.pairs) == (load_level_of(2), 2)
    assert (many.load, many.pairs) == (load_level_of(8), 1)
    assert merged(*paired(first), *paired(first)) == few
