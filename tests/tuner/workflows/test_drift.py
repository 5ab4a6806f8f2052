"""Drift watched over closed windows in front of a real engine; decisions logged; plans valued."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collectors.errors import CollectorError
from collectors.records import OFF, Plan, PlanEntry, Route, load_level_of
from policy.drift_alarms import Alarm, AlarmKind
from policy.lottery import Chance, drawn
from policy.off_policy import Estimator
from policy.simulate.wear import Wear, worn_windows
from policy.types import LoadMix, Window
from tests.fixtures.facts import DRAFT_3
from tests.fixtures.sites import Clock, site_on
from tests.policy.worlds import draft_costs, observation, step_costs
from tests.tuner.cli.running import ran
from tests.tuner.engine.server.running import RunningEngine
from tuner.errors import NothingToDo
from tuner.store import decisions, drift, facts, observations
from tuner.store.decisions import Decision
from tuner.workflows.apply import Intent, apply
from tuner.workflows.drift import acknowledge, ground, parts_of, watch_drift
from tuner.workflows.plan_worth import plan_worth
from tuner.workflows.site import Site

NOWHERE = "http://127.0.0.1:9"
START_S = 86_400.0
ONE = load_level_of(1)


@pytest.fixture
def clock() -> Clock:
    return Clock(START_S)


@pytest.fixture
def site(
    migrated_file: Path, tmp_path: Path, engine: RunningEngine, clock: Clock
) -> Iterator[Site]:
    with site_on(
        migrated_file,
        tmp_path,
        engine.url,
        clock,
        arms=(OFF, DRAFT_3),
        routes=(Route(name="chat"),),
    ) as opened:
        yield opened


def close(site: Site, windows: list[Window]) -> None:
    with site.store.writing() as session:
        for window in windows:
            observations.add(session, site.engine, window, site.now())


def worn(num_windows: int, wear: Wear | None = None) -> list[Window]:
    drawn = worn_windows(wear or Wear(), num_windows, np.random.default_rng(3))
    return [
        replace(
            one.window,
            start_s=START_S + one.window.start_s,
            end_s=START_S + one.window.end_s,
            observations=tuple(
                replace(seen, start_s=START_S + seen.start_s, end_s=START_S + seen.end_s)
                for seen in one.window.observations
            ),
        )
        for one in drawn
    ]


def alarms(site: Site, *, open_only: bool = True) -> list[Alarm]:
    with site.store.reading() as session:
        return [one.alarm for one in drift.alarms(session, site.engine, open_only=open_only)]


def test_a_slide_in_closed_windows_becomes_one_alarm_however_the_rounds_fall(
    site: Site, clock: Clock
):
    wear = Wear(requests_per_window=30.0, slide_from=100 * 30, shared_deviation=0.0)
    windows = worn(170, wear)

    for place in range(0, 170, 34):
        close(site, windows[place : place + 34])
        clock.now_s = windows[place + 33].end_s
        assert watch_drift(site).windows == 34
    assert watch_drift(site).windows == 0

    (alarm,) = alarms(site)
    assert (alarm.kind, alarm.route) == (AlarmKind.DECAY, "chat")
    assert "eagle on chat fell" in alarm.saw


def test_an_engine_that_does_not_answer_leaves_its_windows_looked_at(
    migrated_file: Path, tmp_path: Path, clock: Clock
):
    with site_on(migrated_file, tmp_path, NOWHERE, clock) as site:
        close(site, worn(20))
        with pytest.raises(CollectorError):
            watch_drift(site)
        with site.store.reading() as session:
            assert drift.state_of(session, site.engine)[1] == START_S + 20 * 60


def test_weights_that_changed_since_the_last_start_are_a_version_change(site: Site, clock: Clock):
    capabilities = site.collector.capabilities()
    former = {**parts_of(capabilities), "weights_hash": "f" * 64}
    with site.store.writing() as session:
        facts.open_cursor(session, site.engine, capabilities.boot_id, site.now())
        drift.add_identity(
            session, site.engine, drift.Identity(at_s=1.0, boot_id="former", parts=former)
        )
    clock.now_s += 300

    assert watch_drift(site).raised == 1
    assert watch_drift(site).raised == 0

    (alarm,) = alarms(site)
    assert alarm.kind is AlarmKind.VERSION_CHANGE
    assert alarm.since_s == START_S
    assert "weights_hash" in alarm.saw


def test_an_engine_that_starts_again_and_again_stops_decisions_for_all_routes(site: Site):
    with site.store.writing() as session:
        for boot in "abcde":
            facts.open_cursor(session, site.engine, boot, site.now())

    watch_drift(site)

    assert "starts of the engine" in str(ground(site, ()).waiting_reason("chat"))


def test_a_looping_route_waits_until_somebody_acknowledges_it(site: Site):
    loop = Alarm(
        kind=AlarmKind.LOOP,
        route="chat",
        since_s=START_S - 60,
        seen_s=START_S,
        saw="all drafts were kept",
        advice="read answers",
    )
    with site.store.writing() as session:
        drift.note_alarms(session, site.engine, [loop], site.now())

    assert "all drafts were kept" in str(ground(site, ()).waiting_reason("chat"))
    assert ground(site, ()).waiting_reason("story") is None
    acknowledge(site, 1, who="ann", why="copies by design")
    assert ground(site, ()).waiting_reason("chat") is None


def test_evidence_from_before_a_change_is_cut_down_although_its_alarm_is_over(site: Site):
    change = Alarm(
        kind=AlarmKind.VERSION_CHANGE,
        route=None,
        since_s=START_S + 600,
        seen_s=START_S + 600,
        saw="another engine",
        advice="evaluate again",
    )
    windows = tuple(worn(20))
    with site.store.writing() as session:
        drift.note_alarms(session, site.engine, [change], site.now())
        drift.end_quiet(session, site.engine, START_S + 90_000)

    found = ground(site, windows).windows

    before, after = found[0].observations[0], found[-1].observations[0]
    assert before.passes <= 0.1 * windows[0].observations[0].passes
    assert after == windows[-1].observations[0]


def logged(site: Site) -> list[Decision]:
    with site.store.reading() as session:
        return list(decisions.log_of(session, site.engine, 0.0, 1e12).decisions)


def test_the_plan_found_in_force_and_each_change_of_it_are_logged(site: Site, clock: Clock):
    lookup = OFF if not site.possible_arms() else site.possible_arms()[0]
    watch_drift(site)
    watch_drift(site)
    live = site.actuator.read_back()
    wanted = Plan(entries=(PlanEntry(route="chat", load=ONE, setting=lookup),))
    clock.now_s += 60

    apply(site, Intent(plan=wanted, before=live, recommendation=None, who="ann", why="to try"))

    first, second = logged(site)
    assert (first.at_s, first.who, first.plan.digest) == (START_S, "found in force", live.digest)
    assert (second.at_s, second.who, second.plan.digest) == (START_S + 60, "ann", wanted.digest)
    assert second.chance_at(("chat", ONE)).of(lookup) == 1.0
    assert {arm for arm, _ in second.chance_at(("chat", ONE)).arms} == {OFF, DRAFT_3}
    assert "+" in second.policy_version


HAZARDS = (0.8, 0.5, 0.2)
STEP_S = {OFF: 0.020, DRAFT_3: 0.026}
TOKENS = {OFF: 1.0, DRAFT_3: 2.5}
DRAFTING = Plan(default=DRAFT_3)


def step_s(_rows: int, positions: int) -> float:
    return 0.02 + 0.001 * (positions - 1)


def served(number: int, drafting: bool) -> Window:
    """A minute at load 1 in which the route ran off or drafted three tokens."""
    setting = DRAFT_3 if drafting else OFF
    seen = observation(setting, HAZARDS, passes=1000)
    end_s = START_S + 60 * (number + 1)
    mix = LoadMix(
        load=ONE,
        steps=1000,
        rows_by_route={"chat": 1.0},
        context_tokens=512.0,
        tokens=seen.tokens,
        busy_s=1000 * STEP_S[setting],
    )
    return Window(
        start_s=end_s - 60,
        end_s=end_s,
        observations=(replace(seen, start_s=end_s - 60, end_s=end_s),),
        step_costs=tuple(step_costs(step_s, 1, [0, 3])),
        draft_costs=tuple(draft_costs(lambda _rows, depth: 0.001 * depth, [1], [1, 3])),
        mixes=(mix,),
    )


def ran_in_turns(site: Site, clock: Clock) -> None:
    """20 minutes off, 20 minutes drafting, in turns of 5, one of them begun within a window."""
    windows = [served(number, drafting=number // 5 % 2 == 1) for number in range(40)]
    close(site, windows)
    with site.store.writing() as session:
        for turn in range(8):
            decisions.note(
                session,
                Decision(
                    engine=site.engine,
                    at_s=START_S + 300.0 * turn - (30 if turn == 3 else 0),
                    plan=DRAFTING if turn % 2 else Plan(),
                    policy_version="v",
                    who="ann",
                    arms=(OFF, DRAFT_3),
                ),
            )
    clock.now_s = windows[-1].end_s + 1


def test_a_plan_that_ran_in_turns_is_worth_what_it_yielded(site: Site, clock: Clock):
    ran_in_turns(site, clock)

    worth = plan_worth(site, DRAFTING, 7200.0)

    want = TOKENS[DRAFT_3] / STEP_S[DRAFT_3]
    found = {one.estimator: one.tokens_per_s.mean for one in worth.value.estimates}
    assert found[Estimator.SNIPS] == pytest.approx(want, rel=1e-6)
    assert found[Estimator.DIRECT] == pytest.approx(want, rel=0.03)
    assert found[Estimator.DR] == pytest.approx(want, rel=0.03)
    (place,) = worth.value.places
    assert (place.windows, place.matching_windows) == (39, 20)
    assert worth.logged.left_out == {"the plan changed within the window, or none was logged": 1}


def test_a_plan_is_valued_from_what_recommendations_stand_on(site: Site, clock: Clock):
    """A route that forgets within seconds has no acceptance left to predict from."""
    ran_in_turns(site, clock)
    settings = site.settings.model_copy(update={"routes": (Route(name="chat", half_life_s=1.0),)})
    forgetful = replace(site, settings=settings)
    clock.now_s += 60

    found = plan_worth(forgetful, DRAFTING, 7200.0).value.estimates

    assert {one.estimator for one in found} == {Estimator.IPS, Estimator.SNIPS}


def test_windows_that_were_drawn_for_count_by_the_chance_of_the_draw(site: Site, clock: Clock):
    """Every fifth of 40 drew the draft, with a chance of 0.2; five more ran it without a draw."""
    windows = [served(number, drafting=number % 5 == 0 or number >= 40) for number in range(45)]
    close(site, windows)
    chance = Chance(route="chat", load=ONE, arms=((OFF, 0.8), (DRAFT_3, 0.2)))
    on_trial = Plan(entries=(PlanEntry(route="chat", load=ONE, setting=DRAFT_3),))
    with site.store.writing() as session:
        for number, window in enumerate(windows[:41]):
            made = Decision(
                engine=site.engine,
                at_s=window.start_s + 0.5,
                plan=on_trial if number % 5 == 0 else Plan(),
                policy_version="v",
                who="explore",
                arms=(OFF, DRAFT_3),
                chances=(chance,) if number < 40 else (),
                seed=number if number < 40 else None,
                until_s=window.end_s if number < 40 else None,
            )
            decisions.note(session, made)
    clock.now_s = windows[-1].end_s + 1

    worth = plan_worth(site, on_trial, 7200.0)

    (place,) = [one for one in worth.value.places if one.route == "chat"]
    assert (place.windows, place.matching_windows) == (45, 13)
    found = {one.estimator: one for one in worth.value.estimates}
    want = TOKENS[DRAFT_3] / STEP_S[DRAFT_3]
    assert found[Estimator.SNIPS].tokens_per_s.mean == pytest.approx(want, rel=1e-6)
    logged_tokens = [sum(one.tokens for one in window.observations) for window in windows]
    assert found[Estimator.IPS].coverage == pytest.approx(
        sum(logged_tokens[:40]) / sum(logged_tokens)
    )


def test_the_command_lists_draws_so_that_they_can_be_made_again(
    site: Site, clock: Clock, tmp_path: Path
):
    ran_in_turns(site, clock)
    chance = Chance(route="chat", load=ONE, arms=((OFF, 0.3), (DRAFT_3, 0.7)))
    story = PlanEntry(route="story", load=ONE, setting=DRAFT_3)
    made = Decision(
        engine=site.engine,
        at_s=clock.now_s,
        plan=Plan(entries=(story,)),
        policy_version="v",
        who="explore",
        arms=(OFF, DRAFT_3),
        chances=(chance,),
        seed=2**53 - 1,
        until_s=clock.now_s + 60,
    )
    with site.store.writing() as session:
        decisions.note(session, made)
    clock.now_s += 1

    code, out, _ = ran(*asking(site, tmp_path), "--setting", "off")

    (draw,) = json.loads(out)["draws"]
    assert (code, draw["seed"], draw["until_s"]) == (0, 2**53 - 1, made.until_s)
    (place,) = draw["chances"]
    assert (place["route"], place["load"]) == ("chat", "1")
    assert [one["chance"] for one in place["arms"]] == [0.3, 0.7]
    chosen = drawn([chance], 2**53 - 1)
    assert draw["drawn"] == (
        chosen and {"route": "chat", "load": "1", "setting": chosen[1].to_dict()}
    )


def test_without_logged_decisions_a_plan_cannot_be_valued(site: Site, clock: Clock):
    close(site, [served(number, drafting=False) for number in range(5)])
    clock.now_s = START_S + 400

    with pytest.raises(NothingToDo, match="--hours"):
        plan_worth(site, Plan(), 3600.0)


def asking(site: Site, folder: Path) -> tuple[str, ...]:
    """Return the words that ask what a plan was worth on a site."""
    config = folder / "spectuner.toml"
    settings = site.settings
    config.write_text(
        f'database_url = "{settings.database_url}"\nengine_url = "{settings.engine_url}"\n'
    )
    return ("evaluate-plan", "--config", str(config), "--hours", "1e6", "--json", "-")


def test_the_command_values_a_setting_against_the_plan_in_force(
    site: Site, clock: Clock, tmp_path: Path
):
    ran_in_turns(site, clock)
    asked = asking(site, tmp_path)

    code, out, err = ran(*asked, "--setting", "draft_model:3", "--route", "chat", "--load", "1")

    assert (code, "snips" in err) == (0, True)
    figures = json.loads(out)
    (place,) = figures["places"]
    assert place["tokens_per_s"]["snips"] == pytest.approx(2.5 / STEP_S[DRAFT_3])
    assert place["chance"] == pytest.approx(20 * STEP_S[DRAFT_3] / (20 * 0.026 + 19 * 0.020))
    assert figures["evaluable_share"] == pytest.approx(20 * 2500 / (20 * 2500 + 19 * 1000))
    assert [entry["route"] for entry in figures["plan"]["entries"]] == ["chat"]
