from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from collectors.records import OFF, Method, Setting
from tuner.bench.figures import Sums
from tuner.bench.recommended import Recommended, predicted_speedup, recommend

SHORT = Setting(method=Method.EAGLE, k=2)
LONG = Setting(method=Method.EAGLE, k=5)
TREE = Setting(method=Method.EAGLE, k=3, tree_nodes=5, tree_width=3)
SUFFIX = Setting(method=Method.SUFFIX, k=4)
PASSES = 10


def sums(number: int, speedup: float, accepted: int = 1) -> Sums:
    """What an arm does on the question of a number: a step takes as long as the speedup leaves."""
    return Sums(
        question=f"qa {number}",
        category="qa",
        outcomes=Counter({(5, accepted): PASSES}),
        tokens=PASSES * (1 + accepted),
        step_s=PASSES * (1 + accepted) / speedup,
        plain_step_s=PASSES,
        num_timed=PASSES,
    )


def arm(speedups: Sequence[float], accepted: int = 1) -> list[Sums]:
    return [sums(number, speedup, accepted) for number, speedup in enumerate(speedups)]


def eagle(arms: Mapping[Setting, Sequence[Sums]]) -> Recommended:
    (found,) = recommend({OFF: arm([1.0] * 4, accepted=0), **arms}, batch=1)
    return found


def test_the_prediction_is_tokens_a_pass_over_a_step_in_plain_steps() -> None:
    passes = Counter({(3, 3): 1, (3, 1): 2, (3, 0): 1})
    found = Sums(
        question="qa 1",
        category="qa",
        outcomes=passes,
        tokens=9,
        step_s=0.12,
        plain_step_s=0.08,
        num_timed=4,
    )

    # Survival 3/4, 1/4, 1/4 gives 2.25 tokens for one and a half plain steps.
    assert predicted_speedup([found], 3) == pytest.approx(2.25 / 1.5)


def test_the_setting_with_most_goodput_is_recommended_and_not_the_one_that_keeps_most() -> None:
    found = eagle({SHORT: arm([1.4] * 4, 1), LONG: arm([1.2] * 4, 3), TREE: arm([1.3] * 4, 2)})

    assert found.setting == SHORT
    assert found.predicted_speedup == pytest.approx(1.4)
    assert found.halves == (SHORT, SHORT)
    assert found.speedup == pytest.approx(1.4)


def test_a_method_that_does_not_pay_is_recommended_off_and_timed_as_off() -> None:
    found = eagle({SHORT: arm([0.9] * 4), LONG: arm([0.8] * 4)})

    assert (found.setting, found.predicted_speedup) == (OFF, 1.0)
    assert found.halves == (OFF, OFF)
    assert found.speedup == pytest.approx(1.0)


def test_each_half_is_timed_under_the_other_halfs_choice() -> None:
    # Questions 0 and 2 are good for short drafts, 1 and 3 for long ones.
    short, long = arm([2.0, 0.5, 2.0, 0.5]), arm([0.8, 1.6, 0.8, 1.6])
    found = eagle({SHORT: short, LONG: long})

    assert found.halves == (SHORT, LONG)
    # Each is slow where it was not chosen; the fastest of them over all questions hides that.
    waited = 20 / 0.5 + 20 / 0.8
    assert found.speedup == pytest.approx(2 * 20 / waited)
    assert found.predicted_speedup > 0.9


def test_luck_on_one_half_does_not_make_a_recommendation_look_fast() -> None:
    lucky = {
        Setting(method=Method.EAGLE, k=k): arm([3.0 if k == 1 + place else 0.9 for place in (0, 1)])
        for k in (1, 2)
    }
    (found,) = recommend({OFF: arm([1.0] * 2, accepted=0), **lucky}, batch=1)

    assert found.setting.k in (1, 2)
    assert found.predicted_speedup > 1.3
    assert found.speedup == pytest.approx(0.9)


def test_a_half_that_finds_nothing_to_pay_leaves_the_other_half_to_off() -> None:
    found = eagle({SHORT: arm([1.5, 0.5, 1.5, 0.5])})

    assert found.halves == (SHORT, OFF)
    # 40 tokens at half speed on the one half, 20 at plain speed on the other.
    assert found.speedup == pytest.approx((40 + 20) / (40 / 0.5 + 20))


def test_one_question_gives_a_choice_but_no_time_for_it() -> None:
    (found,) = recommend({OFF: arm([1.0], accepted=0), SHORT: arm([1.5])}, batch=16)

    assert (found.setting, found.batch) == (SHORT, 16)
    assert (found.halves, found.speedup) == ((), None)
    assert found.to_dict()["speedup_interval"] is None


def test_methods_are_recommended_apart_and_the_interval_is_over_questions() -> None:
    fast = arm([1.2, 1.4, 1.2, 1.4, 1.2, 1.4])
    found = recommend(
        {OFF: arm([1.0] * 6, accepted=0), SHORT: fast, SUFFIX: arm([0.5] * 6)}, batch=1
    )

    assert [(each.method, each.setting) for each in found] == [
        (Method.EAGLE, SHORT),
        (Method.SUFFIX, OFF),
    ]
    interval = found[0].to_dict()["speedup_interval"]
    assert isinstance(interval, tuple)
    low, mean, high = interval
    assert 1.2 <= low < mean < high <= 1.4


def test_repetitions_that_fill_a_batch_stay_in_the_half_of_their_question() -> None:
    twice = [*arm([1.5, 0.5]), sums(0, 1.5)]
    (found,) = recommend({OFF: arm([1.0] * 2, accepted=0), SHORT: twice}, batch=3)

    assert found.halves == (SHORT, OFF)
