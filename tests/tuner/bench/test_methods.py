from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import Method
from tuner.bench.method_report import MethodReport, Source
from tuner.bench.methods import COPY_ROUTES, MethodBench, MethodOptions
from tuner.engine.settings import EngineSettings
from tuner.errors import BadRequest

ROW_KEYS = {
    "method",
    "k",
    "batch",
    "prompts",
    "tokens_per_pass",
    "acceptance_by_position",
    "c",
    "predicted_speedup",
    "speedup",
    "rss_mb",
}
ARMS = [
    ("off", 0),
    ("draft_model", 1),
    ("draft_model", 4),
    ("prompt_lookup", 1),
    ("prompt_lookup", 4),
]


@pytest.fixture(scope="module")
def options(roomy_model: Path, questions_file: Path) -> MethodOptions:
    return MethodOptions(
        engine=EngineSettings(
            model=str(roomy_model),
            draft=str(roomy_model),
            methods=(Method.DRAFT_MODEL, Method.PROMPT_LOOKUP),
            threads=1,
        ),
        prompts=questions_file,
        limit=0,
        demo_limit=1,
        num_tokens=24,
        batches=(1, 3),
        draft_lengths=(1, 4),
    )


@pytest.fixture(scope="module")
def counted(options: MethodOptions) -> tuple[MethodReport, int, int]:
    calls = []
    bench = MethodBench(options)
    report = bench.run(on_run=lambda: calls.append(1))
    return report, len(calls), bench.num_runs


@pytest.fixture(scope="module")
def report(counted: tuple[MethodReport, int, int]) -> MethodReport:
    return counted[0]


def test_every_arm_has_a_row_at_every_batch_over_all_questions(report: MethodReport) -> None:
    rows = json.loads(json.dumps(report.to_dict(), allow_nan=False))["methods"]

    assert [(row["method"], row["k"], row["batch"]) for row in rows] == [
        (method, k, batch) for batch in (1, 3) for method, k in ARMS
    ]
    assert all(set(row) >= ROW_KEYS for row in rows)
    # Four questions make one batch of three and another that is filled up from the front.
    assert [row["prompts"] for row in rows] == [4] * 5 + [6] * 5
    assert all(row["rss_mb"] > 1 and row["speedup"] > 0 for row in rows)


def test_a_draft_model_that_is_the_target_is_always_right_and_its_gain_predicted(
    report: MethodReport,
) -> None:
    off, short, long = [row.figures for row in report.rows()[:3]]

    assert (off.tokens_per_pass, off.acceptance_by_position, off.c) == (1, (), None)
    assert (short.acceptance_by_position, long.acceptance_by_position) == ((1,), (1,) * 4)
    # 23 tokens follow the prefill: four passes of five and one of the last three.
    assert long.tokens_per_pass == pytest.approx(23 / 5)
    assert long.c is not None
    assert long.predicted_speedup == pytest.approx(long.tokens_per_pass / (1 + 4 * long.c))


def test_a_question_takes_the_same_passes_alone_and_in_a_batch(report: MethodReport) -> None:
    alone = {
        (run.setting, sums.question): sums.outcomes
        for run in report.runs
        if run.batch == 1 and run.source is Source.FILE
        for sums in run.sums
    }

    for run in (run for run in report.runs if run.batch == 3):
        for sums in run.sums:
            assert sums.outcomes == alone[run.setting, sums.question]
        # Four questions fill two batches of three, two of them twice.
        assert [sums.question for sums in run.sums] == [
            *("rag 1", "summarization 2", "qa 3"),
            *("qa 4", "rag 1", "summarization 2"),
        ]


def test_without_batch_1_nothing_is_asked_that_belongs_to_it(options: MethodOptions) -> None:
    report = MethodBench(replace(options, batches=(3,), draft_lengths=(2,))).run()

    assert (report.sampled.more_long_questions, report.sampled.demo_questions) == (0, 0)
    assert {run.source for run in report.runs if run.sums} == {Source.FILE}
    assert report.group_rows() == []
    assert {each.batch for each in report.recommended()} == {3}


def test_groups_hold_the_demos_routes_and_the_files_categories(report: MethodReport) -> None:
    groups = {row.group for row in report.group_rows()}

    assert groups == {
        "copy-heavy demo routes",
        "RAG + summarisation",
        *COPY_ROUTES,
        "rag",
        "summarization",
        "qa",
    }
    long = next(row for row in report.group_rows() if row.group == "RAG + summarisation")
    assert long.figures.questions == 2


def test_what_was_left_out_is_said(report: MethodReport) -> None:
    sampled = report.to_dict()["sampled"]

    assert sampled == {
        "file": "questions.jsonl",
        "questions_in_file": 4,
        "questions": 4,
        "too_long": 0,
        "later_turns_left_out": 1,
        "more_long_questions": 0,
        "demo_questions": 3,
        "max_tokens": 24,
    }
    assert "eagle" in report.to_dict()["not_loaded"]  # type: ignore[operator]


def test_progress_counts_every_run(counted: tuple[MethodReport, int, int]) -> None:
    _, calls, told = counted

    # Only off and the two arms of prompt lookup answer the demo's three questions.
    assert calls == told == len(ARMS) * (4 + 2) + 3 * 3


def test_methods_without_weights_are_asked_further_long_questions(
    options: MethodOptions, tmp_path: Path
) -> None:
    lines = [{"category": "rag", "turns": [f"return the value {number}"]} for number in range(6)]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    few = replace(options, prompts=path, limit=2, long_limit=5, demo_limit=0, batches=(1,))

    report = MethodBench(few).run()

    asked = {
        row.setting.method: row.figures.questions
        for row in report.group_rows()
        if row.group == "RAG + summarisation"
    }
    assert asked == {Method.OFF: 5, Method.PROMPT_LOOKUP: 5, Method.DRAFT_MODEL: 2}
    assert report.sampled.more_long_questions == 3


def test_questions_beyond_the_models_context_are_refused(options: MethodOptions) -> None:
    with pytest.raises(BadRequest, match="no question of those chosen has 10 tokens or less"):
        MethodBench(replace(options, num_tokens=1024 - 64 - 10))
