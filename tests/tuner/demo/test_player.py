import asyncio
import time
from collections.abc import Sequence
from random import Random

import httpx

from tests.tuner.demo.stream_server import Served, stream_server
from tuner.demo.phases import Phase
from tuner.demo.player import Player
from tuner.demo.traffic import Prompt

PROMPTS = tuple(
    Prompt(route=route, messages=({"role": "user", "content": "Hi"},), sampling={})
    for route in ("chat", "story")
)


def played(served: Served, phases: Sequence[Phase], drain_s: float = 5) -> Player:
    async def run() -> Player:
        async with httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=60) as client:
            player = Player(client=client, model="m", prompts=PROMPTS, generator=Random(7))
            for phase in phases:
                await player.play(phase)
            await player.drain(drain_s)
            return player

    return asyncio.run(run())


def phase(seconds: float, rate: float, in_flight: int) -> Phase:
    return Phase(name="test", duration_s=seconds, rate_per_s=rate, max_in_flight=in_flight)


def test_every_arrival_is_answered_or_counted_as_unsent() -> None:
    with stream_server() as served:
        player = played(served, [phase(0.5, 40, 8)])

    assert len(player.traces) == len(served.bodies) > 5
    assert all(not trace.error for trace in player.traces)
    assert player.in_flight == 0


def test_no_more_than_the_phase_allows_is_under_way() -> None:
    with stream_server() as served:
        served.delay_s = 0.01
        player = played(served, [phase(0.6, 100, 3)])

    assert served.most_in_flight == 3
    assert player.num_unsent > 0


def test_a_phase_lasts_as_long_as_it_says_whatever_the_server_does() -> None:
    with stream_server() as served:
        served.delay_s = 20
        start = time.monotonic()
        played(served, [phase(0.3, 50, 2), phase(0.3, 50, 2)], drain_s=0)

    assert 0.6 <= time.monotonic() - start < served.delay_s


def test_both_routes_get_the_same_share() -> None:
    with stream_server() as served:
        played(served, [phase(0.5, 60, 30)])

    counts = [served.routes.count(route) for route in ("chat", "story")]
    assert abs(counts[0] - counts[1]) <= 1


def test_requests_that_outlast_the_drain_are_cancelled() -> None:
    with stream_server() as served:
        served.delay_s = 1
        player = played(served, [phase(0.1, 100, 4)], drain_s=0.1)

    assert player.traces == []
    assert player.in_flight == 0
