"""Quantiles and intervals against independent figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from policy.errors import InvalidInput
from policy.statistics import (
    beta_intervals,
    beta_parameters,
    more_often_p,
    ratio_interval,
    sample_interval,
    wilson_interval,
)


def test_beta_intervals_hold_nine_tenths() -> None:
    (found,) = beta_intervals(np.array([30.0]), np.array([10.0]))
    inside = special.betainc(30, 10, found.high) - special.betainc(30, 10, found.low)
    assert inside == pytest.approx(0.9)
    assert found.mean == 0.75


@given(mean=st.floats(0, 1), weight=st.floats(1e-3, 1e12))
def test_parameters_keep_mean_and_weight_inside_the_open_range(mean: float, weight: float) -> None:
    alpha, beta = beta_parameters(np.array([mean]), np.array([weight]))
    assert alpha[0] > 0
    assert beta[0] > 0
    assert (alpha + beta)[0] == pytest.approx(weight)


def test_wilson_agrees_with_the_published_formula() -> None:
    found = wilson_interval(8, 10, confidence=0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_wilson_of_nothing_is_no_data_and_of_all_stays_inside() -> None:
    assert wilson_interval(0, 0) is None
    found = wilson_interval(5, 5)
    assert found is not None
    assert 0 < found.low < found.high == 1


def test_impossible_shares_are_named() -> None:
    with pytest.raises(InvalidInput, match="hits must be 0 to the 3 trials, got 4"):
        wilson_interval(4, 3)
    with pytest.raises(InvalidInput, match="confidence must be inside 0 to 1, got 1"):
        wilson_interval(1, 3, confidence=1)


def test_a_ratio_of_sums_has_the_textbook_interval() -> None:
    """With equal bottoms it is the mean of the tops with Student's interval."""
    tops = np.array([90.0, 100.0, 110.0, 120.0])
    found = ratio_interval(tops, np.full(4, 2.0))
    half = float(stats.t.ppf(0.95, 3)) * float(tops.std(ddof=1)) / 2 / 2
    assert (found.low, found.mean, found.high) == pytest.approx((52.5 - half, 52.5, 52.5 + half))


def test_a_ratio_of_one_pair_says_nothing_of_its_error() -> None:
    found = ratio_interval(np.array([3.0]), np.array([2.0]))
    assert (found.low, found.mean, found.high) == (-np.inf, 1.5, np.inf)


def test_fisher_needs_both_sides() -> None:
    assert more_often_p(5, 5, 0, 0) == 1
    assert more_often_p(4, 4, 0, 4) == pytest.approx(1 / 70)


def test_a_sample_interval_always_holds_its_mean() -> None:
    found = sample_interval(np.linspace(0, 1, 101), 1.5)
    assert found.low == pytest.approx(0.05)
    assert (found.mean, found.high) == (1.5, 1.5)
