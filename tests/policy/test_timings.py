"""Shapes timed too seldom by themselves are taken together, and no others."""

import pytest

from policy.timings import MIN_STEPS, Timing, gathered


def timing(count: float, mean_s: float = 0.1) -> Timing:
    return Timing(count=count, total_s=count * mean_s, total_square_s2=count * mean_s**2)


def test_what_was_timed_often_enough_stays_as_it_is() -> None:
    cells = {(8, 8): timing(MIN_STEPS), (8, 16): timing(50.0), (8, 24): timing(1.0)}
    assert gathered(cells) == {key: cells[key] for key in ((8, 8), (8, 16))}


def test_thin_shapes_become_one_of_their_mean_size_and_time() -> None:
    found = gathered({(64, 130): timing(2, 0.2), (65, 131): timing(4, 0.5)})
    ((shape, total),) = found.items()
    assert shape == (65, 131)
    assert total.count == 6
    assert total.mean_s == pytest.approx((2 * 0.2 + 4 * 0.5) / 6)


def test_plain_steps_keep_to_themselves() -> None:
    assert gathered({(64, 64): timing(3), (64, 65): timing(3)}) == {}


def test_a_step_twice_as_large_is_another_shape() -> None:
    assert gathered({(8, 9): timing(3), (16, 18): timing(3)}) == {}


def test_a_measured_shape_is_not_replaced_by_the_mean_of_thin_ones() -> None:
    cells = {(65, 130): timing(9, 0.3), (64, 130): timing(3), (66, 130): timing(3)}
    assert gathered(cells)[65, 130] == cells[65, 130]
