"""Drift told apart from luck, from other traffic, from faults; alarms measured on known worlds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from collectors.records import LOAD_LEVELS, Method, Setting
from policy.drift import DriftOptions, DriftState, fault_reason, watch
from policy.drift_alarms import (
    AFTER,
    BEFORE,
    UPTIME,
    Alarm,
    AlarmKind,
    Boot,
    continued,
    restart_alarm,
    version_alarms,
)
from policy.drift_evidence import KEPT, investigated, trusted
from policy.drift_history import History
from policy.simulate.wear import Wear, worn_windows
from policy.tally import impossible_reason
from policy.types import Evidence, Observation, Window
from tests.policy.worlds import draft, lookup, observation, step_costs, survival_of

HAZARDS = (0.8, 0.625, 0.4)


def windows_of(counts: list[list[Observation]], length_s: float = 60.0) -> Iterator[Window]:
    for number, seen in enumerate(counts):
        start_s = number * length_s
        yield Window(
            start_s=start_s,
            end_s=start_s + length_s,
            observations=tuple(
                replace(one, start_s=start_s, end_s=start_s + length_s) for one in seen
            ),
        )


def alarms_of(
    windows: Iterator[Window], boot: Boot | None = None, options: DriftOptions | None = None
) -> list[Alarm]:
    state, found = DriftState(), []
    for window in windows:
        state, alarms = watch(state, window, boot, options)
        found += alarms
    return found


def drawn(
    generator: np.random.Generator,
    passes: int,
    hazards: tuple[float, ...] = HAZARDS,
    *,
    route: str = "chat",
    setting: Setting | None = None,
    is_greedy: bool | None = None,
) -> Observation:
    tries, left = [], passes
    for hazard in hazards:
        tries.append(left)
        left = int(generator.binomial(left, hazard))
    hits = (*tries[1:], left)
    return Observation(
        route=route,
        setting=setting or draft(len(hazards)),
        load=observation(draft(1), [0.5]).load,
        start_s=0.0,
        end_s=60.0,
        passes=passes,
        verify_passes=passes,
        drafted=passes * len(hazards),
        accepted=sum(hits),
        tokens=passes + sum(hits),
        attempts=tuple(tries),
        accepts=tuple(hits),
        is_greedy=is_greedy,
    )


@pytest.mark.parametrize("rate", [6.0, 30.0])
def test_a_slide_from_3_07_to_2_80_sounds_an_alarm_within_2000_requests(rate: float):
    """vllm-project/vllm#41838: acceptance wears with uptime until the next restart."""
    quiet, waits = 400, []
    for seed in range(6):
        wear = Wear(requests_per_window=rate, slide_from=int(quiet * rate), shared_deviation=0.0)
        state, generator = DriftState(), np.random.default_rng(seed)
        for worn in worn_windows(wear, quiet + int(2500 / rate), generator):
            state, alarms = watch(state, worn.window, Boot(boot_id="b", started_s=0.0))
            if alarms:
                (alarm,) = alarms
                waits.append(worn.requests - quiet * rate)
                break

        assert alarm.kind is AlarmKind.DECAY
        assert alarm.route == "chat"
        assert alarm.method is Method.EAGLE
        assert alarm.figures[BEFORE] == pytest.approx(3.07, abs=0.06)
        assert alarm.figures[AFTER] < alarm.figures[BEFORE] - 0.08
        slide_s = 60.0 * wear.slide_requests / rate
        assert -0.1 < (alarm.figures[UPTIME] - quiet * 60.0) / slide_s < 1.1
        assert "eagle on chat fell from 3." in alarm.saw
        assert "restart" in alarm.advice

    assert len(waits) == 6
    assert all(-0.1 * quiet * rate < wait <= 2000 for wait in waits)


def test_a_route_week_without_a_change_sounds_at_most_one_alarm():
    windows_in_week = 7 * 24 * 12
    wear = Wear(window_s=300.0, requests_per_window=30.0)
    generator = np.random.default_rng(11)

    alarms = alarms_of(one.window for one in worn_windows(wear, windows_in_week, generator))

    assert len(alarms) <= 1


def test_acceptance_that_comes_back_is_a_rise_and_no_second_decay():
    generator = np.random.default_rng(1)
    levels = [HAZARDS] * 40 + [(0.7, 0.5, 0.3)] * 40 + [HAZARDS] * 40

    alarms = alarms_of(windows_of([[drawn(generator, 500, level)] for level in levels]))

    assert [alarm.kind for alarm in alarms] == [AlarmKind.DECAY, AlarmKind.RISE]
    assert [round(alarm.since_s / 60) for alarm in alarms] == pytest.approx([40, 80], abs=4)


def adaptive_day(number: int, generator: np.random.Generator, lower: float = 0.0) -> Observation:
    """An adaptive mode that keeps only what it is sure of while the engine is busy."""
    is_busy = number // 20 % 2
    hazards = tuple(hazard - lower for hazard in ((0.9, 0.9) if is_busy else HAZARDS))
    setting = replace(draft(len(hazards)), is_adaptive=True)
    load = LOAD_LEVELS[4 if is_busy else 1]
    return replace(drawn(generator, 400, hazards, setting=setting), load=load)


def test_an_adaptive_mode_that_follows_the_load_is_no_change_of_acceptance():
    generator = np.random.default_rng(7)
    seen = [[adaptive_day(number, generator)] for number in range(120)]
    assert alarms_of(windows_of(seen)) == []


def test_an_adaptive_mode_that_slides_at_every_load_sounds_an_alarm():
    generator = np.random.default_rng(7)
    seen = [[adaptive_day(n, generator, 0.12 if n >= 80 else 0.0)] for n in range(120)]
    alarms = alarms_of(windows_of(seen))
    assert [alarm.kind for alarm in alarms] == [AlarmKind.DECAY]
    assert alarms[0].since_s / 60 == pytest.approx(80, abs=4)


def test_another_draft_length_or_method_is_no_change_of_acceptance():
    generator = np.random.default_rng(2)
    seen = [[drawn(generator, 400, HAZARDS[: 1 + number // 20])] for number in range(60)] + [
        [drawn(generator, 400, (0.3, 0.3), setting=lookup(2))] for _ in range(40)
    ]

    assert alarms_of(windows_of(seen)) == []


def test_traffic_that_moves_between_routes_is_a_mix_change_and_no_decay():
    generator = np.random.default_rng(3)
    easy, hard = (0.9, 0.9, 0.9), (0.5, 0.4, 0.3)
    seen = []
    for number in range(120):
        share = 0.8 if number < 60 else 0.2
        first = int(generator.normal(1000 * share, 40))
        seen.append(
            [
                drawn(generator, first, easy, route="code"),
                drawn(generator, 1000 - first, hard, route="story"),
            ]
        )

    alarms = alarms_of(windows_of(seen))
    alarm = alarms[0]

    assert {one.kind for one in alarms} == {AlarmKind.MIX_CHANGE}
    assert alarm.route is None
    assert alarm.since_s / 60 == pytest.approx(60, abs=8)
    assert alarm.figures[BEFORE] > alarm.figures[AFTER]
    assert alarm.figures["share_before code/mixed"] > 0.7
    assert alarm.figures["share code/mixed"] < 0.6
    assert "code/mixed" in alarm.saw


def test_prompts_of_another_kind_within_a_route_are_a_mix_change_and_no_decay():
    generator = np.random.default_rng(4)
    seen = []
    for number in range(120):
        share = 0.9 if number < 60 else 0.3
        greedy = int(generator.normal(1000 * share, 20))
        seen.append(
            [
                drawn(generator, greedy, (0.9, 0.9, 0.9), is_greedy=True),
                drawn(generator, 1000 - greedy, (0.4, 0.4, 0.4), is_greedy=False),
            ]
        )

    alarms = alarms_of(windows_of(seen))

    assert {alarm.kind for alarm in alarms} == {AlarmKind.MIX_CHANGE}
    assert "chat/greedy" in alarms[0].saw


def test_a_decay_of_one_route_is_no_change_of_the_mix():
    generator = np.random.default_rng(5)
    seen = [
        [
            drawn(generator, 500, HAZARDS if number < 60 else (0.6, 0.4, 0.3), route="chat"),
            drawn(generator, 500, HAZARDS, route="story"),
        ]
        for number in range(120)
    ]

    assert {(a.kind, a.route) for a in alarms_of(windows_of(seen))} == {(AlarmKind.DECAY, "chat")}


def faulty(**changes: object) -> Observation:
    return replace(observation(draft(3), survival_of(HAZARDS)), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (faulty(drafted=10), "accepted of 10 drafted"),
        (faulty(drafted=-40, accepted=-60), "negative"),
        (faulty(tokens=-1), "tokens delivered"),
        (faulty(passes=math.nan), "not a number"),
        (faulty(drafted=math.nan, attempts=(), accepts=()), "drafted"),
        (faulty(drafted=math.inf), "not a number"),
        (faulty(accepts=(9000, 9500, 10), attempts=(10_000, 9000, 9500)), "more often"),
        (faulty(verify_passes=20_000), "verify passes"),
        (faulty(accepted=1), "by position"),
    ],
)
def test_counts_that_cannot_be_are_a_fault_and_teach_nothing(seen: Observation, said: str):
    generator = np.random.default_rng(6)
    windows = windows_of([[drawn(generator, 300)] for _ in range(30)] + [[seen]])

    (alarm,) = alarms_of(windows)

    assert alarm.kind is AlarmKind.COUNTER_FAULT
    assert (alarm.route, alarm.since_s, alarm.seen_s) == ("chat", 1800.0, 1860.0)
    assert said in alarm.saw
    assert all(math.isfinite(figure) for figure in alarm.figures.values())
    state, _ = watch(DriftState(), Window(start_s=0.0, end_s=60.0, observations=(seen,)))
    assert "chat" not in state.histories


def test_an_engine_that_does_not_count_by_position_is_not_at_fault():
    """Field case F2: per position unknown is not 0."""
    seen = faulty(attempts=(), accepts=(), accepted=150, drafted=300)

    assert impossible_reason(seen) is not None
    assert fault_reason(seen) is None


def test_a_few_restarts_are_no_fault_but_five_within_a_quarter_of_an_hour_are():
    boots = [Boot(boot_id=str(n), started_s=100.0 * n) for n in range(5)]

    assert restart_alarm(boots[:4], 410.0) is None
    assert restart_alarm(boots, 3600.0) is None
    alarm = restart_alarm(boots, 410.0)

    assert alarm is not None
    assert alarm.kind is AlarmKind.COUNTER_FAULT
    assert alarm.route is None
    assert alarm.figures["starts"] == 5
    assert alarm.since_s == 0.0


def test_acceptance_of_all_drafts_is_a_loop_and_never_a_success():
    generator = np.random.default_rng(7)
    levels = [HAZARDS] * 40 + [(1.0, 1.0, 1.0)] * 4

    alarms = alarms_of(windows_of([[drawn(generator, 500, level)] for level in levels]))

    loops = [alarm for alarm in alarms if alarm.kind is AlarmKind.LOOP]
    assert loops
    assert loops[0].figures["acceptance_rate"] >= 0.995
    assert "repeat" in loops[0].saw
    assert "chat" in investigated(loops)


def test_a_very_good_route_is_no_loop():
    generator = np.random.default_rng(8)

    assert alarms_of(windows_of([[drawn(generator, 500, (0.97, 0.97))] for _ in range(60)])) == []


def test_replays_and_counterfactuals_sound_no_alarm():
    generator = np.random.default_rng(9)
    live = [[drawn(generator, 500)] for _ in range(40)]
    others = [
        [
            drawn(generator, 500),
            replace(drawn(generator, 5000, (0.2, 0.1, 0.1)), evidence=kind),
        ]
        for kind in (Evidence.REPLAY, Evidence.COUNTERFACTUAL) * 20
    ]

    assert alarms_of(windows_of(live + others)) == []


def test_a_changed_drafter_is_told_from_a_changed_engine():
    before = {"weights_hash": "a" * 64, "engine": "x 1", "drafter eagle": "e 1", "drafter mtp": "m"}
    after = {**before, "drafter eagle": "e 2", "drafter pard": "p"}

    (drafter,) = version_alarms(before, after, since_s=5.0, seen_s=9.0)
    (engine,) = version_alarms(before, {**before, "weights_hash": "b"}, since_s=5.0, seen_s=9.0)

    assert (drafter.kind, drafter.method) == (AlarmKind.VERSION_CHANGE, Method.EAGLE)
    assert "e 1 to e 2" in drafter.saw
    assert engine.method is None
    assert "weights_hash" in engine.saw
    assert version_alarms(before, before, since_s=5.0, seen_s=9.0) == ()


def alarm(kind: AlarmKind, route: str | None = None, method: Method | None = None) -> Alarm:
    return Alarm(
        kind=kind, route=route, method=method, since_s=600.0, seen_s=700.0, saw="s", advice="a"
    )


def test_evidence_from_before_a_version_change_counts_little_and_stays_possible():
    generator = np.random.default_rng(10)
    old, new = windows_of([[drawn(generator, 437)], [drawn(generator, 437)]], length_s=500.0)
    old = replace(old, step_costs=tuple(step_costs(lambda rows, positions: 0.01, 1, [0])))

    kept, fresh = trusted([old, new], [alarm(AlarmKind.VERSION_CHANGE)])

    assert fresh == new
    (seen,) = kept.observations
    assert 0 < seen.passes <= 437 * KEPT[AlarmKind.VERSION_CHANGE]
    assert impossible_reason(seen) is None
    assert fault_reason(seen) is None
    assert seen.acceptance_rate == pytest.approx(old.observations[0].acceptance_rate, rel=0.1)
    (cost,) = kept.step_costs
    assert cost.steps == 20
    assert cost.total_s / cost.steps == pytest.approx(0.01)


def test_a_burst_from_before_a_change_is_cut_down_too():
    """Windows count for so many passes at most; the cut must come on top of that."""
    (old,) = windows_of([[drawn(np.random.default_rng(0), 1_000_000)]])

    (kept,) = trusted([old], [alarm(AlarmKind.VERSION_CHANGE)])

    assert kept.observations[0].passes <= 50


def test_a_changed_drafter_touches_its_own_evidence_only():
    generator = np.random.default_rng(12)
    (old,) = windows_of([[drawn(generator, 400), drawn(generator, 400, setting=lookup(3))]])

    (kept,) = trusted([old], [alarm(AlarmKind.VERSION_CHANGE, method=Method.DRAFT_MODEL)])
    (own,) = trusted([old], [alarm(AlarmKind.DECAY, route="story")])

    assert [one.passes for one in kept.observations] == [40, 400]
    assert own == old


def test_an_alarm_that_goes_on_keeps_when_and_from_what_it_began():
    first = replace(
        alarm(AlarmKind.DECAY, "chat", Method.EAGLE), figures={BEFORE: 3.07, AFTER: 2.9}
    )
    again = replace(first, since_s=900.0, seen_s=950.0, figures={BEFORE: 2.9, AFTER: 2.8})

    both = continued(first, again)

    assert (both.since_s, both.seen_s) == (600.0, 950.0)
    assert both.figures == {BEFORE: 3.07, AFTER: 2.8}
    assert "from 3.07 to 2.80" in both.saw


def test_what_was_seen_survives_its_wire_form():
    generator = np.random.default_rng(13)
    worn = list(worn_windows(Wear(), 60, generator))
    state = DriftState()
    for one in worn[:30]:
        state, _ = watch(state, one.window)

    read = DriftState(
        histories={
            scope: History.from_dict(history.to_dict())
            for scope, history in state.histories.items()
        }
    )
    for one in worn[30:]:
        state, first = watch(state, one.window)
        read, second = watch(read, one.window)
        assert first == second
    assert {scope: one.to_dict() for scope, one in read.histories.items()} == {
        scope: one.to_dict() for scope, one in state.histories.items()
    }


def test_weeks_cost_tens_of_buckets():
    state = DriftState()
    for one in worn_windows(Wear(), 1500, np.random.default_rng(14)):
        state, _ = watch(state, one.window)

    assert len(state.histories["chat"].buckets) <= 50
