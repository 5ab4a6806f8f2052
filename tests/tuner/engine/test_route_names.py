from __future__ import annotations

import logging

import pytest

from collectors.records import Plan
from tests.tuner.engine.test_live_plan import capabilities, entry
from tuner.engine.live_plan import MAX_ROUTES, LivePlan
from tuner.engine.route_names import ONCE_S, UNUSED_S


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def crowded(clock: Clock) -> LivePlan:
    """Return a plan whose places are all taken by names seen once."""
    live = LivePlan(None, capabilities(), clock=clock)
    for number in range(MAX_ROUTES):
        live.route_of(f"junk{number}")
    return live


def test_a_real_route_gets_a_place_once_names_seen_once_have_aged():
    clock = Clock()
    live = crowded(clock)
    early = [live.route_of("shop") for _ in range(5)]
    clock.now_s = ONCE_S

    late = live.route_of("shop")

    assert set(early) == {"other"}
    assert late == "shop"
    assert live.route_of("shop") == "shop"


def test_a_crowd_of_names_that_never_return_takes_no_more_places():
    clock = Clock()
    live = crowded(clock)
    clock.now_s = ONCE_S

    assert {live.route_of(f"more{number}") for number in range(2000)} == {"other"}


def test_a_route_in_use_keeps_its_place_and_one_unused_for_a_day_does_not():
    clock = Clock()
    live = LivePlan(None, capabilities(), clock=clock)
    for number in range(MAX_ROUTES):
        live.route_of(f"r{number}")
        live.route_of(f"r{number}")
    clock.now_s = UNUSED_S - 1
    live.route_of("r0")
    refused = {live.route_of("new") for _ in range(4)}
    clock.now_s = UNUSED_S

    assert refused == {"other"}
    assert live.route_of("new") == "new"
    assert live.route_of("r0") == "r0"


def test_what_a_plan_names_has_a_place_and_keeps_it():
    clock = Clock()
    live = crowded(clock)
    live.replace(Plan(entries=(entry("shop", "1"), entry("junk0", "1"))))
    clock.now_s = 10 * UNUSED_S
    for name in [f"new{number}" for number in range(MAX_ROUTES)] * 3:
        live.route_of(name)

    assert [live.route_of(name) for name in ("shop", "junk0")] == ["shop", "junk0"]


def test_a_route_that_is_left_out_is_named_with_the_way_out_once_in_ten_minutes(
    caplog: pytest.LogCaptureFixture,
):
    clock = Clock()
    live = crowded(clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            live.route_of("shop")

    [record] = caplog.records
    assert "'shop' counts as other" in record.getMessage()
    assert "--route" in record.getMessage()
