"""The reviewed mode: evidence within its budget, approval after the delay, figures kept apart."""

import numpy as np

from collectors.records import LOAD_LEVELS, OFF, Plan
from policy.simulate.engine import ARMS, Engine, lookup, model
from policy.simulate.live_trials import LiveTrials, Served
from policy.simulate.profiles import profile_named
from policy.simulate.promises import promises_of
from policy.simulate.reviewed import Reviewed, ReviewOptions
from policy.simulate.run import run
from policy.simulate.shadow import CALIBRATED_ROWS, Replays, calibration_of, replayed
from policy.simulate.worlds import ROUTES, draw_world
from policy.types import Advice, Evidence, Recommendation, Trial

LEVEL = LOAD_LEVELS[4]


def engine_of(num_windows: int = 120, workload: str = "W1") -> Engine:
    world = draw_world(2, (workload,), num_windows)
    return Engine(world=world, profile=profile_named("gpu"))


def proposal(by: Evidence, route: str = "code", win_share: float = 0.5) -> Recommendation:
    trial = Trial(
        setting=model(3),
        by=by,
        load=LEVEL,
        most_gain=0.5,
        most_token_share=0.02,
        win_share=win_share,
    )
    return Recommendation(route=route, advice=Advice.NO_CHANGE, changes=(), trials=(trial,))


def test_a_calibration_times_plain_steps_with_the_tax_and_drafts_of_the_arms_only() -> None:
    engine = engine_of()
    window = calibration_of(engine, ARMS, np.random.default_rng(0))
    assert window.is_calibration
    assert {cost.rows for cost in window.step_costs} == set(CALIBRATED_ROWS)
    assert {cost.method for cost in window.draft_costs} == {lookup(2).method, model(1).method}
    plain = next(cost for cost in window.step_costs if cost.rows == cost.positions == 16)
    expected = 1.03 * float(engine.profile.step_table_s(16, 0.0)[16])
    assert abs(plain.total_s / plain.steps / expected - 1) < 0.1


def test_replays_count_as_replays_and_leave_no_mix() -> None:
    window = replayed(engine_of(), 5, 0, model(3), np.random.default_rng(1))
    (seen,) = window.observations
    assert (seen.route, seen.evidence, seen.setting) == ("code", Evidence.REPLAY, model(3))
    assert window.mixes == ()
    assert window.step_costs[0].rows == 4


def test_what_is_wanted_is_replayed_once_and_then_each_arm_in_turn_on_all_routes() -> None:
    replays = Replays(engine_of(), ARMS, np.random.default_rng(2))
    replays.propose([proposal(Evidence.REPLAY)])
    first = {(seen.route, seen.setting) for one in replays.round(0) for seen in one.observations}
    assert first == {("code", OFF), ("code", model(3))}
    later = [
        {seen.setting for one in replays.round(number) for seen in one.observations} - {OFF}
        for number in range(1, len(ARMS))
    ]
    assert {setting for settings in later for setting in settings} == set(ARMS) - {OFF}


def test_live_trials_keep_to_two_percent_of_a_routes_tokens() -> None:
    trials = LiveTrials(400, ARMS, 7)
    trials.propose([proposal(Evidence.LIVE)])
    plan, tried = Plan(), 0
    for _ in range(1000):
        found = trials.draw(plan)
        route = None if found is None else found[0][0]
        tried += found is not None
        trials.serve(Served(load=LEVEL, tokens=dict.fromkeys(ROUTES, 100), tried=route))
    assert 0.015 * 1000 <= tried <= 0.02 * 1000


def test_nothing_is_in_force_before_the_delay_is_over_and_changes_follow_approvals() -> None:
    engine = engine_of(90)
    options = ReviewOptions(ask_every_windows=10, approve_after_windows=20)
    reviewed = Reviewed(engine, options)
    ticks = iter(range(10**6))
    trace = run(engine, reviewed, 2, lambda: float(next(ticks)))
    approved = {one.window for one in reviewed.approved}
    assert approved
    assert min(approved) >= 10 + 20
    tried = [number for number, routes in enumerate(reviewed.exploring) if routes]
    around = {number + after for number in tried for after in (0, 1)}
    moved = set(np.flatnonzero(trace.moved.sum(axis=1)).tolist())
    assert moved <= approved | around
    assert all(one.change.proposed != one.change.current for one in reviewed.approved)


def test_promises_are_judged_over_the_windows_that_follow_at_their_load_level() -> None:
    engine = engine_of(120)
    reviewed = Reviewed(engine)
    ticks = iter(range(10**6))
    run(engine, reviewed, 2, lambda: float(next(ticks)))
    judged = [one for one in reviewed.approved if one.window <= 120 - 10]
    found = promises_of(engine, reviewed.approved)
    assert len(found.errors) == len(judged)
    assert found.over_off_judged <= len(judged)
    assert 0 <= found.over_off_held <= found.over_off_judged
