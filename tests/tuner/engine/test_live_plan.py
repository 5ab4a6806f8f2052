from __future__ import annotations

import pytest

from collectors.records import (
    LOAD_LEVELS,
    OFF,
    AcceptanceRule,
    Method,
    Plan,
    PlanEntry,
    Setting,
    load_level_named,
    load_level_of,
)
from tests.tuner.engine.records import LOOKUP_3
from tuner.engine.capabilities import Capabilities, MethodCapability
from tuner.engine.errors import InvalidPlan, PlanConflict, StartupError
from tuner.engine.live_plan import MAX_ROUTES, LivePlan

DRAFT_3 = Setting(method=Method.DRAFT_MODEL, k=3, drafter="tiny")


def capabilities(**changes: object) -> Capabilities:
    values: dict[str, object] = {
        "model": "m",
        "methods": (
            MethodCapability(method=Method.OFF, max_k=0),
            MethodCapability(method=Method.PROMPT_LOOKUP, max_k=8),
            MethodCapability(method=Method.DRAFT_MODEL, max_k=5, drafter="tiny", drafter_hash="h"),
        ),
        "max_rows": 4,
        "max_context_tokens": 64,
        "queue_limit": 8,
        "vocab_size": 100,
    }
    return Capabilities(**{**values, **changes})


def entry(route: str, load: str, setting: Setting = LOOKUP_3) -> PlanEntry:
    return PlanEntry(route=route, load=load_level_named(load), setting=setting)


def test_look_ups_agree_with_the_plan_for_every_route_and_number_of_sequences():
    plan = Plan(default=DRAFT_3, entries=(entry("chat", "1"), entry("chat", "5-8", OFF)))
    live = LivePlan(("chat", "json"), capabilities(), plan)

    for running in (*range(130), 1024, 1025, 5000):
        for route in ("chat", "json", "other"):
            expected = plan.setting_for(route, load_level_of(running))
            assert live.setting_for(route, running) == expected


def test_the_first_plan_is_speculation_off():
    live = LivePlan(None, capabilities())

    assert live.setting_for("chat", 1) == OFF
    assert live.digest == Plan().digest


def test_a_replaced_plan_gets_the_next_version_whatever_it_says():
    live = LivePlan(None, capabilities())

    assert live.replace(Plan(version=99, default=LOOKUP_3)).version == 1
    assert live.replace(Plan(default=OFF)).version == 2
    assert live.current.default == OFF


def test_a_table_taken_before_a_change_keeps_settings_and_digest_of_one_plan():
    live = LivePlan(None, capabilities())
    before = live.table
    live.replace(Plan(default=LOOKUP_3))

    assert (before.setting_for("chat", 1), before.digest) == (OFF, Plan().digest)
    assert live.table.setting_for("chat", 1) == LOOKUP_3


def test_a_change_made_for_another_plan_is_refused_and_changes_nothing():
    live = LivePlan(None, capabilities())
    digest = live.digest
    live.replace(Plan(default=LOOKUP_3), if_digest=digest)

    with pytest.raises(PlanConflict, match=rf"the live plan is \w+, not {digest}"):
        live.replace(Plan(), if_digest=digest)
    assert live.current.version == 1


def test_an_unknown_route_is_refused_with_the_known_ones():
    live = LivePlan(("chat", "json"), capabilities())

    with pytest.raises(
        InvalidPlan, match=r"unknown route 'chatt'; known routes: other, chat, json"
    ):
        live.replace(Plan(entries=(entry("chatt", "1"),)))
    assert live.current.version == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (Setting(method=Method.DRAFT_MODEL, k=6), "k 6 is above 5, the most that draft_model can"),
        (Setting(method=Method.DRAFT_MODEL, k=1, drafter="big"), "'big' is not loaded .* 'tiny'"),
    ],
)
def test_a_setting_beyond_the_drafter_is_refused(setting: Setting, message: str):
    live = LivePlan(None, capabilities())

    with pytest.raises(InvalidPlan, match=message):
        live.replace(Plan(default=setting))


def test_a_method_without_drafter_is_refused_with_the_loaded_ones():
    live = LivePlan(None, capabilities(methods=(MethodCapability(method=Method.OFF, max_k=0),)))

    with pytest.raises(
        InvalidPlan, match=r"'prompt_lookup' has no drafter loaded; use one of: off"
    ):
        live.replace(Plan(entries=(entry("chat", "1"),)))


def test_a_rule_the_engine_has_not_is_refused():
    live = LivePlan(None, capabilities(rules=(AcceptanceRule.REJECTION,)))
    matching = Setting(method=Method.DRAFT_MODEL, k=1, rule=AcceptanceRule.TOKEN_MATCH)

    with pytest.raises(InvalidPlan, match="'token_match' is not available; use one of: rejection"):
        live.replace(Plan(default=matching))


def test_a_draft_length_of_every_load_level_reaches_the_rows():
    settings = {
        level.label: Setting(method=Method.PROMPT_LOOKUP, k=k, lookup_min=1, lookup_max=3)
        for k, level in enumerate(LOAD_LEVELS, start=1)
    }
    live = LivePlan(None, capabilities())
    live.replace(Plan(entries=tuple(entry("chat", load, s) for load, s in settings.items())))

    assert [live.setting_for("chat", level.high).k for level in LOAD_LEVELS] == list(range(1, 9))


@pytest.mark.parametrize("header", [None, "", "  ", "json", "Chat", "a b", "x" * 65, "-a", "\x00"])
def test_a_header_that_names_no_given_route_counts_as_other(header: str | None):
    assert LivePlan(("chat",), capabilities()).route_of(header) == "other"


def test_open_routes_are_taken_as_they_come_until_there_are_too_many():
    live = LivePlan(None, capabilities())

    names = [live.route_of(f"r{number}") for number in range(100)]

    assert len(set(names)) == MAX_ROUTES
    assert names[:63] == [f"r{number}" for number in range(63)]
    assert set(names[63:]) == {"other"}
    assert live.route_of(" r0 ") == "r0"
    assert live.route_of("no name") == "other"


@pytest.mark.parametrize("routes", [None, ("chat",)])
def test_live_traffic_cannot_hide_under_the_name_of_calibration(routes: tuple[str, ...] | None):
    live = LivePlan(routes, capabilities())

    assert live.route_of("calibration") == "other"
    assert live.route_of("calibration", is_shadow=True) == "calibration"
    assert live.route_of("chat", is_shadow=True) == "chat"


def test_a_plan_and_an_engine_refuse_the_name_of_calibration():
    with pytest.raises(InvalidPlan, match="'calibration' is kept for"):
        LivePlan(None, capabilities()).replace(Plan(entries=(entry("calibration", "1"),)))
    with pytest.raises(StartupError, match="'calibration' is kept for"):
        LivePlan(("calibration",), capabilities())


def test_a_route_named_by_the_plan_keeps_its_place_among_open_routes():
    live = LivePlan(None, capabilities())
    live.replace(Plan(entries=(entry("rare", "1"),)))
    for number in range(100):
        live.route_of(f"r{number}")

    assert live.route_of("rare") == "rare"


def test_a_plan_that_names_one_route_too_many_is_refused_whole():
    live = LivePlan(None, capabilities())
    entries = tuple(entry(f"r{number}", "1") for number in range(MAX_ROUTES))

    with pytest.raises(
        InvalidPlan, match="64 routes are named, at most 63 are kept apart from 'other'"
    ):
        live.replace(Plan(entries=entries))
    live.replace(Plan(entries=entries[1:]))
    assert live.route_of("r0") == "other"


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        (("a b",), "route 'a b' is not a name"),
        (tuple(f"r{number}" for number in range(70)), "70 routes are named, at most 63 are kept"),
    ],
)
def test_given_routes_that_cannot_be_kept_apart_end_the_start(
    routes: tuple[str, ...], message: str
):
    with pytest.raises(StartupError, match=message):
        LivePlan(routes, capabilities())
