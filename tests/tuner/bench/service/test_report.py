from dataclasses import replace

from collectors.records import OFF, Plan, load_level_of
from policy.types import Interval
from tests.fixtures.facts import DRAFT_3
from tests.tuner.bench.service.rows import LEVEL_1, LEVEL_4, block
from tuner.bench.service.arms import Arm
from tuner.bench.service.blocks import Decoding
from tuner.bench.service.churn import Churn
from tuner.bench.service.conditions import Condition
from tuner.bench.service.course import Run
from tuner.bench.service.learning import Learned
from tuner.bench.service.options import ServiceBenchOptions
from tuner.bench.service.predictions import Promise
from tuner.bench.service.report import ServiceReport, report_on

LOAD_1 = load_level_of(1)
SPEEDS = {LEVEL_1: {"off": 100.0, "reviewed": 150.0}, LEVEL_4: {"off": 100.0, "reviewed": 96.0}}


def run() -> Run:
    blocks = tuple(
        block(
            arm,
            turn,
            level,
            tokens_per_s=speed,
            decoding={
                ("chat", LOAD_1): Decoding(tokens=round(speed), passes=50, row_s=1.0),
            },
        )
        for turn in range(2)
        for level, arms in SPEEDS.items()
        for arm, speed in arms.items()
    )
    promise = Promise(
        route="chat",
        load=LOAD_1,
        setting=DRAFT_3,
        tokens_per_pass=1.8,
        predicted=Interval(low=1.3, mean=1.4, high=1.6),
    )
    churn = Churn(hours=0.1, num_routes=2, num_new=1)
    churn.proposed = {("chat", LOAD_1): [DRAFT_3, OFF, OFF, OFF, OFF]}
    return Run(
        condition=Condition.QUIET,
        learned=Learned(plan=Plan(), said=(), approved=(1,), refused=("too late",)),
        arms=(Arm(name="off", plan=Plan()), Arm(name="reviewed", plan=Plan())),
        blocks=blocks,
        promises=(promise,),
        num_impossible=0,
        churn=churn,
        failed=0,
    )


def test_the_verdict_names_the_plans_speed_and_its_worst_level() -> None:
    found = report_on(run(), ServiceBenchOptions(fixed=(DRAFT_3,)))

    assert found.verdict() == (
        "quiet: reviewed 1.20x off (1.20 to 1.20); reviewed at its worst level (4) 0.96x"
    )


def test_predictions_and_calm_are_one_line() -> None:
    found = report_on(run(), ServiceBenchOptions())

    assert found.promise_line() == (
        "quiet: 100 % of 1 predictions held, median error 7 %, 0 above tokens per pass, "
        "1 reversals in 4 answers, 5.0 new recommendations a route and hour"
    )


def test_without_predictions_it_says_so() -> None:
    found = report_on(replace(run(), promises=()), ServiceBenchOptions())

    assert found.promise_line() == ("quiet: no prediction could be compared with a measured result")


def test_figures_over_conditions_are_of_all_their_predictions_and_recommendations() -> None:
    quiet = report_on(run(), ServiceBenchOptions())
    noisy = report_on(replace(run(), condition=Condition.BOTH), ServiceBenchOptions())

    found = ServiceReport(conditions=(quiet, noisy)).to_dict()

    assert found["coverage"] == 1.0
    assert found["reversals"] == 0.25
    assert found["recommendations_per_hour"] == 5.0
    assert [one["condition"] for one in found["predictions"]] == ["quiet", "both"]  # type: ignore[attr-defined]
