from itertools import islice
from random import Random

from tuner.bench.service.blocks import Level
from tuner.bench.service.options import ServiceBenchOptions
from tuner.bench.service.traffic import generator_of, levels_of, phase_of
from tuner.demo.phases import arrivals
from tuner.demo.traffic import bundled_traffic, read_traffic


def asked(generator: Random) -> list[object]:
    phase = phase_of(Level(concurrency=4), 7.0, 32)
    found = islice(arrivals(phase, read_traffic(bundled_traffic()), generator), 20)
    return [arrival.prompt for arrival in found]


def test_every_arm_of_a_round_is_asked_the_same_and_rounds_differ() -> None:
    level = Level(concurrency=4)

    assert asked(generator_of(1, 0, level)) == asked(generator_of(1, 0, level))
    assert asked(generator_of(1, 0, level)) != asked(generator_of(1, 1, level))


def test_a_level_holds_its_requests_under_way_for_its_time() -> None:
    phase = phase_of(Level(concurrency=16), 7.0, 32)

    assert (phase.max_in_flight, phase.duration_s) == (16, 7.0)


def test_the_surge_is_the_demos_own() -> None:
    *_, surge = levels_of(ServiceBenchOptions())
    phase = phase_of(surge, 7.0, 32)

    assert (surge.name, surge.concurrency) == ("surge", 24)
    assert (phase.rate_per_s, phase.max_in_flight, phase.duration_s) == (4.0, 24, 7.0)


def test_levels_are_those_asked_for() -> None:
    options = ServiceBenchOptions(levels=(1, 8), has_surge=False)

    assert levels_of(options) == (Level(concurrency=1), Level(concurrency=8))
