import itertools
from random import Random

import pytest

from tuner.demo.phases import Phase, arrivals, monday_morning
from tuner.demo.traffic import Prompt

PROMPTS = tuple(
    Prompt(route=route, messages=({"role": "user", "content": text},), sampling={})
    for route in ("chat", "story", "rag")
    for text in ("a", "b")
)
BUSY = Phase(name="busy", duration_s=400, rate_per_s=5, max_in_flight=9)


def test_the_same_seed_gives_the_same_arrivals() -> None:
    first, again = (list(arrivals(BUSY, PROMPTS, Random(3))) for _ in range(2))

    assert first == again
    assert first != list(arrivals(BUSY, PROMPTS, Random(4)))


def test_gaps_are_exponential_with_the_rate_of_the_phase() -> None:
    times = [arrival.at_s for arrival in arrivals(BUSY, PROMPTS, Random(1))]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5

    assert mean == pytest.approx(0.2, rel=0.08)
    assert spread == pytest.approx(mean, rel=0.1)
    assert max(times) < BUSY.duration_s


def test_every_route_has_its_turn() -> None:
    routes = [arrival.prompt.route for arrival in arrivals(BUSY, PROMPTS, Random(1))]
    counts = [routes.count(route) for route in ("chat", "story", "rag")]

    assert max(counts) - min(counts) <= 1


def test_monday_morning_is_quiet_busy_quiet_and_fills_the_time() -> None:
    phases = monday_morning(180)

    assert sum(phase.duration_s for phase in phases) == pytest.approx(180)
    assert [phase.max_in_flight >= 16 for phase in phases] == [False, True, False]
    assert phases[0].max_in_flight <= 2
