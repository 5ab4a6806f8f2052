import math
import random

import pytest

from tuner.bench.service.intervals import Reading, interval_of, pooled_scatter


def test_scatter_is_pooled_over_groups_and_costs_each_one_degree_of_freedom() -> None:
    groups = [[Reading(log=0.0), Reading(log=2.0)], [Reading(log=5.0), Reading(log=5.0)]]

    scatter = pooled_scatter([*groups, []])

    assert scatter is not None
    assert (scatter.variance, scatter.freedom) == (1.0, 2)


def test_single_readings_have_no_scatter() -> None:
    assert pooled_scatter([[Reading(log=0.1)], [Reading(log=0.2)]]) is None


def test_a_reading_counts_by_its_weight() -> None:
    group = [Reading(log=0.0, weight=3.0), Reading(log=math.log(2.0), weight=1.0)]
    scatter = pooled_scatter([group])

    assert scatter is not None
    found = interval_of(group, scatter)

    assert found.mean == pytest.approx(2**0.25)
    assert found.low < found.mean < found.high


def test_ninety_of_a_hundred_intervals_hold_the_truth_though_weights_differ() -> None:
    rng, held, drawn = random.Random(7), 0, 2000
    for _ in range(drawn):
        groups = [
            [
                Reading(log=rng.gauss(0.3, 0.1 / math.sqrt(weight)), weight=weight)
                for weight in (1.0, 4.0, rng.uniform(1, 9))
            ]
            for _ in range(3)
        ]
        scatter = pooled_scatter(groups)
        assert scatter is not None
        found = interval_of(groups[0], scatter)
        held += found.low <= math.exp(0.3) <= found.high

    assert held / drawn == pytest.approx(0.9, abs=0.02)
