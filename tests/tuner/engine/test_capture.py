from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from tuner.engine.capture import Capture, CaptureSettings
from tuner.engine.errors import InvalidCapture
from tuner.engine.request import EngineRequest, SamplingParams


def spell(token_ids: Sequence[int]) -> str:
    return "".join(chr(97 + token) for token in token_ids)


def capture(seed: int = 0, **settings: object) -> Capture:
    made = Capture("b", spell, random.Random(seed))
    made.configure(CaptureSettings(**{"enabled": True, **settings}))
    return made


def request(number: int, *, route: str = "chat", is_shadow: bool = False) -> EngineRequest:
    return EngineRequest(
        request_id=f"cmpl-{number}",
        prompt_ids=(7, 8),
        sampling=SamplingParams(temperature=0.5, seed=3, stop=("x",), logit_bias={4: -1.0}),
        route=route,
        is_shadow=is_shadow,
    )


def test_nothing_is_kept_until_capture_is_switched_on():
    made = Capture("b", spell, random.Random(0))

    assert not made.offer(request(1), (3,) * 5, 10.0)
    assert made.page(0, 10).to_dict() == {
        "boot_id": "b",
        "first_seq": 1,
        "last_seq": 0,
        "records": [],
    }


def test_a_kept_request_is_told_in_full():
    made = capture()
    made.offer(request(1), (3,) * 5, 10.0)

    [record] = made.page(0, 10).records

    assert (record.seq, record.at, record.request_id, record.route) == (1, 10.0, "cmpl-1", "chat")
    assert (record.prompt, record.prompt_ids, record.completion_tokens) == ("hi", (7, 8), 5)
    assert record.sampling["temperature"] == 0.5
    assert record.sampling["seed"] == 3
    assert record.sampling["stop"] == ["x"]
    assert record.sampling["logit_bias"] == {"4": -1.0}


def test_private_routes_and_replayed_requests_are_never_kept():
    made = capture(private_routes=("health",))

    assert not made.offer(request(1, route="health"), (3,) * 5, 10.0)
    assert not made.offer(request(2, is_shadow=True), (3,) * 5, 10.0)
    assert made.offer(request(3), (3,) * 5, 10.0)
    assert [record.request_id for record in made.page(0, 10).records] == ["cmpl-3"]


@pytest.mark.parametrize(
    ("share", "low", "high"), [(0.0, 0, 0), (0.25, 200, 300), (1.0, 1000, 1000)]
)
def test_about_the_given_share_is_kept(share: float, low: int, high: int):
    made = capture(share=share, per_route=10_000)

    kept = sum(made.offer(request(number), (3,), 1.0) for number in range(1000))

    assert low <= kept <= high


def test_a_full_route_stays_bounded_and_leans_to_recent_requests():
    made = capture(per_route=50)
    for number in range(1000):
        made.offer(request(number), (3,), 1.0)

    numbers = [int(record.request_id.removeprefix("cmpl-")) for record in made.page(0, 999).records]

    assert len(numbers) == 50
    assert numbers == sorted(numbers)
    assert numbers[-1] == 999
    assert numbers[0] < 950
    assert sum(numbers) / 50 > 900


def test_a_busy_route_displaces_nothing_of_a_quiet_one():
    made = capture(per_route=5)
    made.offer(request(0, route="quiet"), (3,), 1.0)
    for number in range(1, 100):
        made.offer(request(number, route="busy"), (3,), 1.0)

    routes = Counter(record.route for record in made.page(0, 999).records)

    assert routes == {"quiet": 1, "busy": 5}


def test_pages_by_cursor_give_each_held_request_once():
    made = capture()
    for number in range(1, 8):
        made.offer(request(number), (3,), 1.0)

    cursor, seen = 0, []
    while page := made.page(cursor, 3).records:
        seen += [record.seq for record in page]
        cursor = page[-1].seq

    assert seen == [1, 2, 3, 4, 5, 6, 7]


def test_switching_off_forgets_what_was_held_and_numbers_go_on():
    made = capture()
    made.offer(request(1), (3,), 1.0)
    made.configure(CaptureSettings(enabled=False))
    made.configure(CaptureSettings(enabled=True))
    made.offer(request(2), (3,), 1.0)

    assert [record.seq for record in made.page(0, 10).records] == [2]
    assert made.page(0, 10).first_seq == 2


def test_a_route_made_private_is_forgotten_at_once():
    made = capture()
    made.offer(request(1, route="a"), (3,), 1.0)
    made.offer(request(2, route="b"), (3,), 1.0)
    made.configure(CaptureSettings(enabled=True, private_routes=("a",)))

    assert [record.route for record in made.page(0, 10).records] == ["b"]


def test_a_lower_bound_keeps_the_newest():
    made = capture()
    for number in range(1, 6):
        made.offer(request(number), (3,), 1.0)
    made.configure(CaptureSettings(enabled=True, per_route=2))

    assert [record.seq for record in made.page(0, 10).records] == [4, 5]
    assert made.num_held == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 1.5}, "share must be 0 to 1, got 1.5"),
        ({"share": -0.1}, "share must be 0 to 1, got -0.1"),
        ({"per_route": 0}, "per_route must be 1 to 10000, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str):
    with pytest.raises(InvalidCapture, match=message):
        CaptureSettings(**settings)
