import pytest

from tests.tuner.bench.service.rows import LEVEL_1, LEVEL_4, block
from tuner.bench.service.blocks import Level
from tuner.bench.service.comparing import compare

ARMS = ("off", "a", "b")


def test_ratios_are_paired_by_round_so_that_a_slow_round_does_not_matter() -> None:
    blocks = [
        block(arm, turn, tokens_per_s=speed * pace)
        for turn, pace in enumerate((1.0, 0.25))
        for arm, speed in (("off", 80.0), ("a", 120.0))
    ]

    (level,) = compare(blocks, ["off", "a"], ()).levels

    ratio, speed = level.over_off["a"], level.tokens_per_s["a"]
    assert (ratio.low, ratio.mean, ratio.high) == pytest.approx((1.5, 1.5, 1.5))
    assert speed.mean == pytest.approx(60.0)
    assert speed.low < speed.mean < speed.high


def test_the_best_fixed_arm_of_a_round_is_chosen_by_the_other_rounds() -> None:
    speeds = {0: {"off": 100, "a": 200, "b": 150}, 1: {"off": 100, "a": 110, "b": 150}}
    blocks = [
        block(arm, turn, tokens_per_s=speed)
        for turn, of_arms in speeds.items()
        for arm, speed in of_arms.items()
    ]

    (level,) = compare(blocks, ARMS, ("a", "b")).levels

    chosen = level.over_off["best_fixed"]
    assert chosen.mean == pytest.approx((1.5 * 1.1) ** 0.5)


def test_all_levels_count_alike_in_the_figure_over_all() -> None:
    speeds = {LEVEL_1: 1.2, LEVEL_4: 0.9}
    blocks = [
        block(arm, turn, level, tokens_per_s=100 * (ratio if arm == "a" else 1))
        for turn in range(2)
        for level, ratio in speeds.items()
        for arm in ("off", "a")
    ]

    found = compare(blocks, ["off", "a"], ())

    assert found.overall["a"].mean == pytest.approx((1.2 * 0.9) ** 0.5)
    assert found.overall["off"].mean == 1.0


def test_levels_stand_in_order_and_the_surge_comes_last() -> None:
    levels = (Level(concurrency=4, is_surge=True), LEVEL_4, LEVEL_1)
    blocks = [block("off", turn, level) for turn in range(2) for level in levels]

    found = compare(blocks, ["off"], ())

    assert [one.level.name for one in found.levels] == ["1", "4", "surge"]


def test_a_block_under_another_plan_is_left_out() -> None:
    blocks = [block(arm, turn) for turn in range(3) for arm in ("off", "a")]
    blocks.append(block("a", 3, tokens_per_s=900.0, digest="another"))

    (level,) = compare(blocks, ["off", "a"], ()).levels

    assert level.over_off["a"].mean == pytest.approx(1.0)


def test_one_round_gives_no_figures() -> None:
    (level,) = compare([block("off", 0), block("a", 0)], ["off", "a"], ()).levels

    assert level.over_off == {}
