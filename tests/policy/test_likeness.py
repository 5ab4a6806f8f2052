"""Passes that share their texts weigh less, as much less as windows scatter."""

import numpy as np
import pytest

from policy.likeness import FIRST_LIKENESS, LEAST_LIKENESS, Likeness
from policy.statistics import Floats
from policy.tally import Tally


def learned(chances: Floats, passes: int, seed: int = 0) -> Likeness:
    generator, likeness = np.random.default_rng(seed), Likeness()
    believed = np.stack([np.full(16, 700.0), np.full(16, 300.0)])
    for chance in chances:
        table = np.zeros((4, 16))
        table[0, 0], table[1, 0] = passes, generator.binomial(passes, chance)
        likeness = likeness.updated(believed, Tally(by_position=table))
    return likeness


def test_independent_passes_come_to_count_nearly_in_full() -> None:
    likeness = learned(np.full(300, 0.7), 200)
    assert likeness.correlation == pytest.approx(LEAST_LIKENESS, abs=0.003)


def test_windows_that_scatter_measure_their_correlation() -> None:
    generator = np.random.default_rng(1)
    likeness = learned(generator.beta(0.7 * 20, 0.3 * 20, size=400), 200)
    assert likeness.correlation == pytest.approx(1 / 21, rel=0.4)


def test_a_burst_weighs_no_more_than_the_correlation_allows() -> None:
    likeness = Likeness()
    assert likeness.weight(1) == 1
    assert likeness.weight(10**9) * 10**9 == pytest.approx(1 / FIRST_LIKENESS, rel=1e-3)


def test_one_window_beyond_all_measure_does_not_ruin_the_estimate() -> None:
    usual = learned(np.full(100, 0.7), 200)
    shocked = learned(np.append(np.full(100, 0.7), 0.0), 200)
    assert shocked.correlation < usual.correlation + 0.03


def test_what_one_window_shows_scatters_as_windows_did() -> None:
    generator = np.random.default_rng(3)
    likeness = learned(generator.beta(0.7 * 20, 0.3 * 20, size=400), 200)
    mean = np.array([[[7000.0], [3000.0]]])
    alpha, beta = likeness.of_one_window(mean)[0, :, 0]
    drawn = generator.beta(alpha, beta, 4000)
    assert drawn.mean() == pytest.approx(0.7, abs=0.01)
    assert drawn.std() == pytest.approx(np.sqrt(0.21 / 21), rel=0.25)
    calm = learned(np.full(300, 0.7), 200).of_one_window(mean)[0, :, 0]
    assert calm.sum() > 5 * (alpha + beta)
