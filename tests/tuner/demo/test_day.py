import asyncio
import math
import time
from types import SimpleNamespace
from typing import cast

import pytest

from tuner.demo.acts import Acts
from tuner.demo.day import Timed, keep_timetable, timetable
from tuner.demo.phases import monday_morning
from tuner.errors import NothingToDo


def kept(timed: list[Timed]) -> list[str]:
    said: list[str] = []
    asyncio.run(keep_timetable(timed, said.append))
    return said


def test_acts_happen_in_order_and_a_failed_one_is_said_and_passed_over() -> None:
    done: list[str] = []

    def fails() -> None:
        raise NothingToDo("nothing is captured yet")

    said = kept(
        [
            Timed(at_s=0.0, act=lambda: done.append("first")),
            Timed(at_s=0.01, act=fails),
            Timed(at_s=0.02, act=lambda: done.append("last")),
        ]
    )

    assert done == ["first", "last"]
    assert said == ["Left out: nothing is captured yet"]


def test_an_act_that_is_too_late_is_left_out_and_said() -> None:
    done: list[str] = []

    def slow() -> None:
        time.sleep(0.2)

    said = kept(
        [
            Timed(at_s=0.0, act=slow),
            Timed(at_s=0.05, act=lambda: done.append("late"), until_s=0.1),
            Timed(at_s=0.06, act=lambda: done.append("still")),
        ]
    )

    assert done == ["still"]
    assert len(said) == 1
    assert "took too long" in said[0]


def test_an_act_rests_after_one_that_was_done_and_not_after_one_left_out() -> None:
    at: dict[str, float] = {}

    def note(name: str) -> None:
        at[name] = time.monotonic()

    kept(
        [
            Timed(at_s=0.0, act=lambda: note("first")),
            Timed(at_s=0.0, act=lambda: note("rested"), rest_s=0.3),
            Timed(at_s=0.0, act=lambda: note("never"), until_s=0.0),
            Timed(at_s=0.0, act=lambda: note("at once"), rest_s=3600.0),
        ]
    )

    assert at["rested"] - at["first"] >= 0.3
    assert set(at) == {"first", "rested", "at once"}


@pytest.mark.parametrize(("minutes", "num_arms"), [(0.5, 1), (1.0, 2), (3.0, 4)])
def test_a_short_day_tries_fewer_arms_and_the_last_is_tried_however_late(
    minutes: float, num_arms: int
) -> None:
    begun: list[tuple[int, int]] = []
    acts = SimpleNamespace(
        live_arms=lambda: ("a", "b", "c", "d"),
        explore=lambda place, loads: begun.append((place, loads[0].low)),
        end_exploration=lambda: None,
        recommend=lambda: None,
        explore_in_shadow=lambda seconds: None,
    )

    timed = timetable(cast("Acts", acts), monday_morning(60 * minutes), explores=True)
    for one in timed:
        if one.until_s == math.inf:
            one.act()

    assert begun == [(num_arms - 1, 1), (num_arms - 1, 3)]
    assert sum(one.until_s < math.inf for one in timed) == 2 * (num_arms - 1)
