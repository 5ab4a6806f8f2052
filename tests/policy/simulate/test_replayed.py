"""Recorded answers repeat what an engine would do, at the times of a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collectors.records import OFF, Method, Setting
from policy.errors import InvalidInput
from policy.simulate.calibrated import Calibration, RoundTime, VerifyTime
from policy.simulate.closed_loop import ClosedLoop, Field, FixedPlayer, OurPlayer, players
from policy.simulate.folding import counts_of, window_of_steps
from policy.simulate.profiles import Drafting
from policy.simulate.replayed import Marks, ReplayedBatch, Script, Timetable

DRAFT = Method.EAGLE
FIELD = Field(routes=("code", "chat"), drafter=DRAFT)
MAX_TOKENS = 9


def verify_s(rows: int, positions: int) -> float:
    """Four positions cost less than three."""
    return 0.01 * rows + (0.001 * positions if positions != 4 else 0.0005)


CALIBRATION = Calibration(
    verify=tuple(
        VerifyTime(
            rows=rows,
            positions=positions,
            context_tokens=context * rows,
            seconds=verify_s(rows, positions) + 1e-5 * context * rows,
        )
        for rows in (1, 2)
        for context in (10.0, 1000.0)
        for positions in (1, 2, 3, 4, 8, 16)
        if positions >= rows
    ),
    rounds=tuple(
        RoundTime(way=Drafting.MODEL, rows=rows, depth=depth, seconds=0.001 * depth + 0.0002 * rows)
        for rows in (1, 2)
        for depth in (1, 7)
    ),
    catch_up_s={Drafting.MODEL: 1e-4},
    off_tax_ratio=0.01,
)
TIMES = Timetable(
    calibration=CALIBRATION,
    profile=CALIBRATION.profile(),
    ways=FIELD.ways,
    catch_up_s={DRAFT: CALIBRATION.catch_up_s[Drafting.MODEL]},
)


def script(route: str, length: int, kept: int) -> Script:
    """An answer of which every draft keeps so many tokens, as far as it goes."""
    rest = [length - place for place in range(1, length)]
    marks = Marks(drafted=tuple([7] * (length - 1)), kept=tuple(min(kept, left) for left in rest))
    nothing = Marks(drafted=(0,) * (length - 1), kept=(0,) * (length - 1))
    return Script(
        route=route,
        prompt_tokens=5,
        output_tokens=length,
        marks={DRAFT: marks, Method.PROMPT_LOOKUP: nothing},
    )


SCRIPTS = {"code": [script("code", 9, 7)], "chat": [script("chat", 9, 0), script("chat", 4, 1)]}


def eagle(k: int) -> Setting:
    return Setting(method=DRAFT, k=k)


def batch(**rows: int) -> ReplayedBatch:
    return ReplayedBatch(SCRIPTS, rows or {"code": 1, "chat": 1}, TIMES, MAX_TOKENS)


def test_a_measured_time_is_kept_also_where_more_positions_took_less() -> None:
    table = CALIBRATION.profile().step_table_s(1, 10.0)
    assert table[4] == pytest.approx(verify_s(1, 4) + 1e-4)
    assert table[4] < table[3]
    assert table[12] == pytest.approx((table[8] + table[16]) / 2)


def test_context_and_rows_in_between_are_interpolated() -> None:
    profile = CALIBRATION.profile()
    low, high = profile.step_table_s(1, 256.0)[2], profile.step_table_s(1, 1024.0)[2]
    assert profile.step_table_s(1, 640.0)[2] == pytest.approx((low + high) / 2)
    assert high - low == pytest.approx(768 * 1e-5)


def test_drawn_worlds_count_context_beyond_the_usual() -> None:
    absolute = CALIBRATION.profile().step_table_s(2, 1024.0)[4]
    assert CALIBRATION.profile(is_beyond_usual=True).step_table_s(2, 0.0)[4] == pytest.approx(
        absolute, rel=0.02
    )


def test_batches_larger_than_measured_take_more_for_more_positions_and_context() -> None:
    steeper_for_few = replace(
        CALIBRATION,
        verify=tuple(
            replace(cell, seconds=cell.seconds * (3 if cell.rows == 1 else 1))
            for cell in CALIBRATION.verify
        ),
    )
    profile = steeper_for_few.profile(is_beyond_usual=True)
    tables = [profile.step_table_s(rows, 0.0) for rows in (2, 16, 64, 128)]
    times = [float(table[2 * rows]) for table, rows in zip(tables, (2, 16, 64, 128), strict=True)]
    assert times == sorted(times)
    assert np.all(np.diff(tables[-1][16:1024]) > 0)
    absolute = steeper_for_few.profile()
    assert absolute.step_table_s(64, 500.0)[16] == pytest.approx(
        absolute.step_table_s(2, 500.0)[16]
    )


def test_draft_rounds_are_linear_between_what_was_measured() -> None:
    table = CALIBRATION.profile().drafts[Drafting.MODEL]
    seconds = table.seconds(np.array([1, 2, 0]), np.array([4, 7, 3]))
    assert seconds == pytest.approx([0.0042, 0.0074, 0.0])
    grid = table.seconds(np.array([[1], [4]]), np.array([1, 7, 0]))
    assert grid == pytest.approx(np.array([[0.0012, 0.0072, 0.0], [0.0018, 0.0078, 0.0]]))
    lone = replace(CALIBRATION, rounds=CALIBRATION.rounds[:1]).profile().drafts[Drafting.MODEL]
    assert lone.seconds(np.array(9), np.array(5)) == pytest.approx(0.0012)


def test_a_hole_in_the_table_of_rounds_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"rows and depth \(2, 7\)"):
        replace(CALIBRATION, rounds=CALIBRATION.rounds[:-1]).profile()


def test_the_first_step_reads_prompts_and_the_next_ones_decode() -> None:
    steps = [batch_.step({"code": eagle(3), "chat": OFF}) for batch_ in [batch()] for _ in range(4)]
    assert [step.prefill_tokens for step in steps] == [10, 0, 0, 5]
    assert [step.positions for step in steps[:3]] == [10, 5, 5]
    tokens = [{group.route: group.tokens for group in step.groups} for step in steps[1:3]]
    assert tokens == [{"code": 4, "chat": 1}, {"code": 4, "chat": 1}]


def test_a_draft_reaches_no_further_than_the_limit() -> None:
    one = batch(code=1)
    one.step({"code": eagle(7)})
    step = one.step({"code": eagle(7)})
    assert step.groups[0].drafted == MAX_TOKENS - 1 - 1
    assert step.groups[0].tokens == 8
    assert one.step({"code": eagle(7)}).prefill_tokens == 5


def test_a_drafter_reads_what_it_has_not_seen_once() -> None:
    one = batch(chat=1)
    one.step({"chat": OFF})
    first = one.step({"chat": eagle(1)}).drafts[0].seconds
    second = one.step({"chat": eagle(1)}).drafts[0].seconds
    assert second == pytest.approx(0.0012)
    assert first - second == pytest.approx(1e-4 * (6 - 2))


def test_marks_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidInput, match="marks 8 tokens of 7 on route code"):
        replace(SCRIPTS["code"][0], output_tokens=8)


def test_a_window_holds_what_the_service_would_have_stored() -> None:
    one = batch()
    settings = {"code": eagle(3), "chat": OFF}
    steps = [one.step(settings) for _ in range(3)]

    window = window_of_steps(steps, 0.0, 1.0, 64)

    seen = {each.route: each for each in window.observations}
    assert (seen["code"].passes, seen["code"].drafted, seen["code"].accepted) == (2, 6, 6)
    assert seen["code"].attempts == seen["code"].accepts == (2, 2, 2)
    assert (seen["chat"].passes, seen["chat"].verify_passes) == (2, 0)
    (cost,) = window.step_costs
    assert (cost.rows, cost.positions, cost.context_tokens, cost.steps) == (2, 5, 64, 2)
    assert cost.total_s == pytest.approx(sum(step.verify_s for step in steps[1:]))
    assert [(one.method, one.depth, one.rounds) for one in window.draft_costs] == [(DRAFT, 3, 2)]
    assert window.mixes[0].rows_by_route == {"code": 1.0, "chat": 1.0}


def test_counters_leave_steps_with_prefill_out() -> None:
    player = FixedPlayer(eagle(3), FIELD)
    loop = ClosedLoop(batch(), player, {"code": 1, "chat": 1}, window_s=1e-9)
    loop.play_window()
    assert (loop.stretch.tokens, loop.stretch.seconds) == (0, 0.0)
    assert loop.used_s > 0
    loop.play_window()
    assert loop.stretch.tokens == 5
    assert counts_of([], None, None, FIELD.routes, FIELD.ways) is None  # type: ignore[arg-type]


def test_every_policy_plays_and_ours_keeps_drafts_where_they_are_kept() -> None:
    goodputs = {}
    for player in players(FIELD, TIMES, eagle(7), 0):
        loop = ClosedLoop(batch(), player, {"code": 1, "chat": 1}, window_s=0.5)
        while loop.used_s < 40:
            loop.play_window()
        goodputs[player.name] = loop.stretch.goodput
    assert set(goodputs) == {
        "off",
        "fixed eagle k=7",
        "goodput_average",
        "ucb_load",
        "spectuner_autopilot",
    }
    assert goodputs["spectuner_autopilot"] > 1.3 * goodputs["off"]


def test_ours_is_asked_for_arms_that_the_engine_runs() -> None:
    assert {arm.method for arm in FIELD.arms} == {Method.OFF, Method.PROMPT_LOOKUP, DRAFT}
    assert OurPlayer(FIELD, CALIBRATION, 0).name == "spectuner_autopilot"
