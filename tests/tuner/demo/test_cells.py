import pytest

from collectors.records import (
    LOAD_LEVELS,
    LatencyHistogram,
    LoadLevel,
    Method,
    Plan,
    PlanEntry,
    Setting,
)
from policy.types import (
    Advice,
    Evidence,
    Interval,
    LoadChange,
    LoadMix,
    Observation,
    Recommendation,
    RequestObservation,
)
from tuner.demo.cells import Cell, cells_of, totals_of

OFF = Setting()
DRAFT = Setting(method=Method.DRAFT_MODEL, k=3)
ONE, BUSY = LOAD_LEVELS[0], LOAD_LEVELS[4]


def seen(
    route: str,
    load: LoadLevel = ONE,
    setting: Setting = DRAFT,
    evidence: Evidence = Evidence.LIVE,
    **counts: int,
) -> Observation:
    filled = {"passes": 0, "verify_passes": 0, "drafted": 0, "accepted": 0, "tokens": 0, **counts}
    return Observation(
        route=route, setting=setting, load=load, evidence=evidence, start_s=0, end_s=1, **filled
    )


def finished(route: str, load: LoadLevel = ONE, tokens: int = 11) -> RequestObservation:
    return RequestObservation(
        route=route,
        setting=DRAFT,
        load=load,
        requests=1,
        completion_tokens=tokens,
        decode_s=2.0,
        ttft=LatencyHistogram.of([0.1]),
        chunk_gaps=LatencyHistogram(),
        tpot=LatencyHistogram.of([0.2]),
    )


def test_settings_of_one_route_and_load_add_up_to_one_cell() -> None:
    observations = [
        seen("chat", passes=10, verify_passes=10, drafted=30, accepted=12, tokens=22),
        seen("chat", setting=OFF, passes=20, tokens=20),
    ]

    (cell,) = cells_of(observations, [finished("chat"), finished("chat")], [], Plan(), [])

    assert (cell.requests, cell.passes, cell.drafted, cell.accepted, cell.tokens) == (
        2,
        30,
        30,
        12,
        42,
    )
    assert cell.acceptance_rate == pytest.approx(0.4)
    assert cell.acceptance_length == pytest.approx(2.2)
    assert cell.tokens_per_pass == pytest.approx(42 / 30)
    assert cell.tokens_per_s == pytest.approx(5.0)


def test_replayed_steps_are_not_live_traffic() -> None:
    assert cells_of([seen("chat", evidence=Evidence.REPLAY, passes=5)], [], [], Plan(), []) == ()


def test_nothing_drafted_is_no_data_not_zero() -> None:
    (cell,) = cells_of([seen("chat", setting=OFF, passes=3, tokens=3)], [], [], Plan(), [])

    assert cell.acceptance_rate is None
    assert cell.acceptance_length is None
    assert cell.tokens_per_pass == 1.0
    assert cell.tokens_per_s is None


def test_the_live_setting_and_what_is_recommended_come_per_load_level() -> None:
    gain = Interval(low=0.1, mean=0.2, high=0.3)
    change = LoadChange(
        load=ONE,
        current=OFF,
        proposed=DRAFT,
        tokens_per_pass=gain,
        current_tokens_per_pass=1.0,
        step_ratio=gain,
        token_share=1.0,
        route_speed=gain,
        engine_total=gain,
        over_off=gain,
        goodput=gain,
        runner_up=None,
        reason="it pays",
    )
    said = Recommendation(route="chat", advice=Advice.CHANGE, changes=(change,))
    plan = Plan(entries=(PlanEntry(route="chat", load=BUSY, setting=DRAFT),))

    quiet, busy = cells_of(
        [seen("chat", passes=1), seen("chat", BUSY, passes=1)], [], [], plan, [said]
    )

    assert (quiet.setting, quiet.recommended, quiet.engine_total) == ("off", DRAFT.label, gain)
    assert (busy.setting, busy.recommended, busy.route_speed) == ("draft_model k=3", None, None)


def test_totals_add_routes_up_at_each_load_and_carry_the_engines_speed() -> None:
    mix = LoadMix(load=ONE, steps=4, rows_by_route={}, context_tokens=9, tokens=30, busy_s=2.0)
    cells = cells_of(
        [seen("chat", passes=2, accepted=1), seen("rag", passes=3), seen("rag", BUSY, passes=7)],
        [],
        [mix],
        Plan(),
        [],
    )

    quiet, busy = totals_of(cells)

    assert (quiet.route, quiet.load, quiet.passes, quiet.accepted) == ("all", ONE, 5, 1)
    assert quiet.engine_tokens_per_s == pytest.approx(15.0)
    assert (busy.passes, busy.engine_tokens_per_s) == (7, None)


def test_the_json_form_has_the_documented_keys() -> None:
    assert set(Cell(route="chat", load=ONE).to_dict()) == {
        "route",
        "load",
        "requests",
        "drafted",
        "accepted",
        "passes",
        "tokens",
        "acceptance_rate",
        "acceptance_length",
        "tokens_per_pass",
        "setting",
        "recommended",
        "route_speed",
        "engine_total",
    }
