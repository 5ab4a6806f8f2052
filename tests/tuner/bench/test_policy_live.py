"""Parts A and C of the policy benchmark on a tiny model: the replay is what the engine does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import OFF, Method, Setting
from policy.simulate.calibrated import Calibration
from policy.simulate.closed_loop import Field, run_steps
from policy.simulate.engine import lookup, model
from policy.simulate.profiles import Drafting
from policy.simulate.replayed import ReplayedBatch, Timetable
from tests.tuner.cli.running import ran
from tuner.bench.policy_batches import PacedBatch, Reference, TimedStep
from tuner.bench.policy_calibration import Bench, Measured, Shapes, SwitchTime, num_batches
from tuner.bench.policy_engine import LiveBatch, Parts, load_parts, pool
from tuner.bench.policy_engine_report import again, page_of, part_a, part_c
from tuner.bench.policy_fidelity import Cell, Cells, Fidelity, StepPair, slowness_of
from tuner.bench.policy_live import LiveOptions
from tuner.bench.policy_parts import EnginePartsOptions, PartA, read_part_a, run_part_c
from tuner.bench.policy_traces import Recorded, record
from tuner.bench.questions import Encoded
from tuner.cli.bench_policy_engine import calibrate, confirm
from tuner.cli.output import Output
from tuner.engine.limits import EngineLimits
from tuner.engine.settings import EngineSettings

MAX_TOKENS = 24
SHAPES = Shapes(rows=(1, 4), contexts=(16, 32), repeats=1, turns=2)
SWITCH = SwitchTime(method=Method.DRAFT_MODEL, plain_steps=24, seconds=0.001)
METHODS = (Method.PROMPT_LOOKUP, Method.SUFFIX, Method.DRAFT_MODEL, Method.LOOKAHEAD)


@pytest.fixture(scope="module")
def parts(roomy_model: Path) -> Parts:
    limits = EngineLimits(max_rows=4, max_context_tokens=800, prefill_tokens=4000)
    return load_parts(
        EngineSettings(
            model=str(roomy_model),
            draft=str(roomy_model),
            methods=METHODS,
            limits=limits,
            threads=1,
        )
    )


@pytest.fixture(scope="module")
def prompts(parts: Parts) -> dict[str, list[Encoded]]:
    return pool(parts, 2)


@pytest.fixture(scope="module")
def recorded(parts: Parts, prompts: dict[str, list[Encoded]]) -> Recorded:
    return record(parts, prompts, MAX_TOKENS)


@pytest.fixture(scope="module")
def calibration(parts: Parts, prompts: dict[str, list[Encoded]]) -> Calibration:
    calls = []
    text = [token for encoded in prompts.values() for one in encoded for token in one.token_ids]
    bench = Bench(parts, text, SHAPES, Reference(parts), lambda: calls.append(1))
    for _ in range(SHAPES.turns):
        bench.turn()
    measured = bench.measured()
    assert len(calls) == num_batches(SHAPES)
    return measured.calibration


@pytest.fixture(scope="module")
def times(calibration: Calibration) -> Timetable:
    return Timetable(
        calibration=calibration,
        profile=calibration.profile(),
        ways={Method.PROMPT_LOOKUP: Drafting.LOOKUP, Method.DRAFT_MODEL: Drafting.MODEL},
        catch_up_s={Method.DRAFT_MODEL: calibration.catch_up_s[Drafting.MODEL]},
    )


def test_every_promised_shape_is_timed(calibration: Calibration) -> None:
    shapes = {(cell.rows, cell.positions) for cell in calibration.verify}
    assert {(1, 1), (1, 4), (1, 8), (1, 16), (4, 4), (4, 6), (4, 12), (4, 32)} <= shapes
    assert all(cell.seconds > 0 for cell in calibration.verify)
    rounds = {(cell.way, cell.rows, cell.depth) for cell in calibration.rounds}
    assert {(Drafting.MODEL, 1, 7), (Drafting.MODEL, 4, 1), (Drafting.LOOKUP, 4, 7)} <= rounds


@pytest.mark.parametrize("arm", [OFF, lookup(4), model(1), model(7)])
def test_recorded_answers_repeat_the_engine_step_by_step(
    parts: Parts,
    prompts: dict[str, list[Encoded]],
    recorded: Recorded,
    times: Timetable,
    arm: object,
) -> None:
    field = Field(routes=tuple(prompts), drafter=parts.drafter)
    rows = dict.fromkeys(prompts, 1)
    settings = dict.fromkeys(prompts, field.realised(arm))  # type: ignore[arg-type]
    live = LiveBatch(parts.engine(parts.drafters), prompts, rows, MAX_TOKENS)
    again = ReplayedBatch(recorded.scripts, rows, times, MAX_TOKENS)

    for _ in range(60):
        one, other = live.step(settings), again.step(settings)
        assert one.positions == other.positions
        assert one.prefill_tokens == other.prefill_tokens
        assert one.context_tokens == other.context_tokens
        tokens = {group.route: group.tokens for group in one.groups}
        assert tokens == {group.route: group.tokens for group in other.groups}
        asked = [(cost.method, cost.rows, cost.tokens, cost.depth) for cost in one.drafts]
        assert asked == [(cost.method, cost.rows, cost.tokens, cost.depth) for cost in other.drafts]
    live.close()


def found_of(
    parts: Parts, recorded: Recorded, calibration: Calibration, *rates: tuple[float, float]
) -> PartA:
    """Return what part A found, with cells of these measured and predicted rates."""
    return PartA(
        drafter=parts.drafter,
        max_tokens=MAX_TOKENS,
        measured=Measured(
            calibration=calibration, switches=(SWITCH,), reference_s=0.001, cpu_s=1.0
        ),
        recorded=recorded,
        fidelity=Fidelity(cells=tuple(cells(*rates))),
    )


def test_part_a_is_read_as_it_was_written_and_part_c_compares_every_token(
    parts: Parts,
    recorded: Recorded,
    calibration: Calibration,
    tmp_path: Path,
) -> None:
    found = found_of(parts, recorded, calibration, (1.0, 1.0), (2.0, 2.0))
    path = tmp_path / "a.json"
    path.write_text(json.dumps(found.to_dict()))
    again = read_part_a(path)
    assert again == replace(found, fidelity=None)

    options = EnginePartsOptions(
        engine=parts.settings,
        limits=parts.settings.limits,
        live=LiveOptions(seconds=0.4, loads=(4,), window_s=0.05),
    )
    confirmed = run_part_c(options, again, parts)
    assert confirmed.compared_tokens > 0
    assert confirmed.differences == ()
    names = {standing.policy for standing in confirmed.standings}
    assert {"off", "goodput_average", "ucb_load", "spectuner_autopilot"} < names
    assert len(names) == 5

    wrong = {
        route: tuple((-1, *answer[1:]) for answer in answers)
        for route, answers in again.recorded.answers.items()
    }
    doctored = replace(again, recorded=replace(again.recorded, answers=wrong))
    refuted = run_part_c(options, doctored, parts)
    assert refuted.failure is not None
    assert "differ from plain decoding" in refuted.failure


def test_parts_a_and_c_are_printed_and_reported(
    roomy_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = EnginePartsOptions(
        engine=EngineSettings(model=str(roomy_model), draft=str(roomy_model), methods=METHODS),
        limits=EngineLimits(max_rows=4, max_context_tokens=800, prefill_tokens=4000),
        per_route=1,
        max_tokens=16,
        shapes=SHAPES,
        cells=Cells(mixes=(("code_edit", "chat"),), loads=(2,), settings=(OFF, model(1)), steps=3),
        live=LiveOptions(seconds=0.2, loads=(4,), window_s=0.05),
    )
    output = Output.open(None)

    found, loaded = calibrate(output, options)
    confirmed = confirm(output, options, found, loaded)

    assert found.fidelity is not None
    assert [cell.has_same_tokens for cell in found.fidelity.cells] == [True, True]
    printed = capsys.readouterr().out
    assert "Tax of speculation switched off" in printed
    assert "2 of 2 cells delivered exactly the tokens of the recording." in printed
    assert "all equal." in printed
    page = page_of([part_a(found), part_c(confirmed), again("spectuner bench policy --part all")])
    assert page.count("<svg") == 2
    assert "http" not in page
    assert "spectuner bench policy --part all" in page
    assert page_of(["<p>more</p>"], "<body>B</body>") == "<body>B<p>more</p></body>"


def test_a_file_whose_gate_failed_scores_no_policy(
    parts: Parts, recorded: Recorded, calibration: Calibration, tmp_path: Path
) -> None:
    found = found_of(parts, recorded, calibration, (1.0, 1.3), (2.0, 2.6))
    path = tmp_path / "a.json"
    path.write_text(json.dumps(found.to_dict()))

    code, out, err = ran("bench", "policy", "--profile", "cpu", "--calibration", str(path))

    assert code == 2
    assert out == ""
    assert "no policy may be scored on it: the mean absolute error of 30.0%" in err


def test_the_gate_wants_small_errors_and_the_right_order() -> None:
    good = Fidelity(cells=tuple(cells((1.0, 1.05), (2.0, 1.9), (3.0, 3.0))))
    assert good.mae == pytest.approx(0.1 / 3)
    assert good.tau == 1.0
    assert good.failure is None
    swapped = Fidelity(cells=tuple(cells((1.0, 1.04), (1.01, 1.0), (3.0, 3.0))))
    assert swapped.tau == pytest.approx(1 / 3)
    assert swapped.failure == "Kendall's tau of 0.33 is below 0.9"
    elsewhere = replace(cells((5.0, 5.0))[0], rows=8)
    assert Fidelity(cells=(*good.cells, elsewhere)).tau == 1.0


def test_pairs_within_the_error_of_their_figures_are_counted_and_still_count() -> None:
    close = Fidelity(cells=tuple(cells((1.0, 1.01), (1.02, 1.0), (3.0, 3.0))))
    assert close.close_pairs == 1
    assert close.tau == pytest.approx(1 / 3)
    assert "1 of 3 pairs of Settings lie closer together" in close.lines()[1]
    sure = Fidelity(cells=tuple(replace(cell, noise=0.001) for cell in close.cells))
    assert sure.close_pairs == 0


def test_a_step_is_judged_by_the_25th_percentile_of_steps_like_it() -> None:
    quick = step_pair(predicted_s=0.01, seconds=0.011)
    slow = step_pair(predicted_s=0.05, seconds=0.05)
    disturbed = step_pair(predicted_s=0.01, seconds=0.5)
    assert slowness_of([slow, quick] * 14) == pytest.approx(0.061 / 0.06)
    assert slowness_of([quick, disturbed, quick] * 7) == pytest.approx(1.1)


def test_a_step_is_put_to_another_pace_with_all_its_parts(
    recorded: Recorded, times: Timetable
) -> None:
    routes = dict.fromkeys(recorded.scripts, 1)
    batch = ReplayedBatch(recorded.scripts, routes, times, MAX_TOKENS)
    drafting = dict.fromkeys(routes, Setting(method=Method.DRAFT_MODEL, k=3))
    step = run_steps(batch, drafting, 0.05)[-1]
    assert step.drafts
    assert step.draft_s > 0

    slower = TimedStep(step, pace_s=0.02).at(0.06)

    assert slower.verify_s == pytest.approx(3 * step.verify_s)
    assert slower.draft_s == pytest.approx(3 * step.draft_s)
    assert slower.step_s == pytest.approx(3 * step.step_s)
    assert slower.groups == step.groups


def test_the_engine_counts_at_the_pace_of_the_table(
    parts: Parts, prompts: dict[str, list[Encoded]]
) -> None:
    rows = dict.fromkeys(prompts, 1)
    reference = Reference(parts)
    taken_s = []
    for slowness in (1, 100):
        live = LiveBatch(parts.engine(parts.drafters), prompts, rows, MAX_TOKENS)
        paced = PacedBatch(live, reference, slowness * reference.usual_s)
        taken_s.append(sum(paced.step(dict.fromkeys(rows, OFF)).step_s for _ in range(20)))
        live.close()
    assert taken_s[1] > 10 * taken_s[0]


def step_pair(*, predicted_s: float, seconds: float) -> StepPair:
    return StepPair(tokens=4, seconds=seconds, predicted_tokens=4, predicted_s=predicted_s)


def cells(*figures: tuple[float, float]) -> list[Cell]:
    return [
        Cell(
            routes=("chat",),
            rows=4,
            setting=model(depth),
            measured=measured,
            predicted=predicted,
            noise=0.01,
            steps=9,
            has_same_tokens=True,
        )
        for depth, (measured, predicted) in enumerate(figures)
    ]


def test_run_steps_stops_once_the_seconds_are_used(recorded: Recorded, times: Timetable) -> None:
    rows = dict.fromkeys(recorded.scripts, 1)
    batch = ReplayedBatch(recorded.scripts, rows, times, MAX_TOKENS)
    steps = run_steps(batch, dict.fromkeys(recorded.scripts, OFF), 0.05)
    assert sum(step.step_s for step in steps[:-1]) < 0.05 <= sum(step.step_s for step in steps)
