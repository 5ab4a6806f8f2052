from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest

from collectors.records import OFF, Method, Setting
from tuner.bench.figures import Sums
from tuner.bench.method_report import ArmRun, MethodReport, Sampled, Source, crossing_of

LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=4, lookup_min=1, lookup_max=3)
SUFFIX = Setting(method=Method.SUFFIX, k=4)
EAGLE_2 = Setting(method=Method.EAGLE, k=2)
EAGLE_4 = Setting(method=Method.EAGLE, k=4)


def sums(category: str, speedup: float, accepted: int = 1) -> Sums:
    """Ten passes of 1 + accepted tokens, as fast as told."""
    tokens = 10 * (1 + accepted)
    return Sums(
        question=category,
        category=category,
        outcomes=Counter({(4, accepted): 10}),
        tokens=tokens,
        step_s=1.0,
        plain_step_s=speedup * 10 / tokens,
        draft_s=0.1,
        draft_depth=40,
        num_timed=10,
    )


def run(setting: Setting, batch: int, *parts: Sums, source: Source = Source.FILE) -> ArmRun:
    return ArmRun(setting=setting, source=source, batch=batch, sums=parts, rss_mb=100.0)


def report(*runs: ArmRun, with_weights: Sequence[Method] = (Method.EAGLE,)) -> MethodReport:
    sampled = Sampled(
        file="questions.jsonl",
        questions_in_file=9,
        questions=3,
        too_long=0,
        later_turns_left_out=0,
        more_long_questions=0,
        demo_questions=1,
        max_tokens=48,
    )
    return MethodReport(
        runs=runs, sampled=sampled, not_loaded=(), with_weights=frozenset(with_weights)
    )


@pytest.fixture
def full() -> MethodReport:
    return report(
        run(OFF, 1, sums("rag", 1.0, 0), sums("qa", 1.0, 0)),
        run(LOOKUP, 1, sums("rag", 1.4), sums("qa", 0.8)),
        run(SUFFIX, 1, sums("rag", 1.2), sums("qa", 0.9)),
        run(EAGLE_2, 1, sums("rag", 1.5), sums("qa", 1.7)),
        run(EAGLE_4, 1, sums("rag", 1.3), sums("qa", 1.3)),
        run(EAGLE_2, 16, sums("rag", 0.7)),
        run(EAGLE_4, 16, sums("rag", 0.4)),
        run(LOOKUP, 1, sums("code_edit", 1.45), source=Source.DEMO),
        run(EAGLE_2, 1, sums("code_edit", 2.5), source=Source.DEMO),
    )


def test_claims_take_the_best_arm_of_their_kind_on_their_questions(full: MethodReport) -> None:
    copying, long, head, slowest = full.claims()

    assert copying.row is not None
    assert (copying.row.setting, copying.row.figures.speedup) == (LOOKUP, 1.45)
    assert copying.holds is False
    assert long.row is not None
    assert (long.row.setting, long.row.figures.speedup) == (LOOKUP, 1.4)
    assert long.holds is True
    assert head.row is not None
    assert head.row.setting == EAGLE_2
    assert head.row.figures.speedup == pytest.approx(1.6)
    assert head.holds is True
    # "rag" chooses lookup, which runs at 0.8 on "qa"; "qa" chooses off, which "rag" then gets.
    assert slowest.name.endswith("(prompt_lookup)")
    assert slowest.row is not None
    assert slowest.row.setting == LOOKUP
    assert slowest.row.figures.speedup == pytest.approx((0.8 + 1.0) / 2)
    assert slowest.holds is False


def test_more_long_questions_count_for_their_group_and_for_no_other() -> None:
    both = report(
        run(LOOKUP, 1, sums("rag", 1.4), sums("qa", 0.8)),
        run(LOOKUP, 1, sums("summarization", 1.0), source=Source.LONG),
    )
    groups = {row.group: row.figures for row in both.group_rows()}

    assert groups["RAG + summarisation"].speedup == pytest.approx(1.2)
    assert groups["RAG + summarisation"].questions == 2
    assert set(groups) == {"RAG + summarisation", "rag", "qa"}
    assert both.rows()[0].figures.speedup == pytest.approx(1.1)


def test_a_head_that_is_fast_but_below_the_tokens_per_pass_does_not_hold() -> None:
    head = report(run(EAGLE_2, 1, sums("qa", 1.6, accepted=0))).claims()[2]

    assert head.holds is False
    assert "wanted 1.3x and 1.8 tokens per pass: does not hold" in head.line()


def test_rows_say_whether_they_are_recommended_at_their_batch_size(full: MethodReport) -> None:
    marked = [row for row in full.to_dict()["methods"] if row["recommended"]]  # type: ignore[attr-defined]

    # At batch 16 no Setting of eagle pays, and off was not measured there.
    assert [(row["method"], row["k"], row["batch"]) for row in marked] == [
        ("prompt_lookup", 4, 1),
        ("suffix", 4, 1),
        ("eagle", 2, 1),
    ]


def test_what_was_not_measured_is_no_verdict() -> None:
    claims = report(run(OFF, 1, sums("qa", 1.0, 0))).claims()

    assert [claim.holds for claim in claims] == [None] * 4
    assert all(claim.line().endswith("not measured") for claim in claims)


def test_a_crossing_lies_between_the_batches_around_it(full: MethodReport) -> None:
    (eagle,) = [each for each in full.crossings() if each.method is Method.EAGLE]

    assert eagle.speedups == pytest.approx({1: 1.6, 16: 0.7})
    assert eagle.batch == pytest.approx(math.exp(math.log(16) * 0.6 / 0.9))
    assert "crosses 1.0 at batch 6.3" in eagle.line()


def test_a_crossing_is_none_where_the_speedup_stays_on_one_side() -> None:
    assert crossing_of({1: 1.5, 16: 1.1}) is None
    assert crossing_of({1: 0.9, 16: 0.5}) is None
    assert crossing_of({1: 1.5}) is None
    assert crossing_of({1: 1.5, 4: 1.0, 16: 0.5}) == pytest.approx(4)


@pytest.mark.parametrize(
    ("speedups", "told"),
    [
        ((1.2, 1.1), "above 1.0 throughout"),
        ((0.9, 0.8), "below 1.0 throughout"),
        ((0.9, 1.1), "rises through 1.0 with the batch"),
    ],
)
def test_a_method_without_a_crossing_is_told_by_its_side(
    speedups: tuple[float, float], told: str
) -> None:
    runs = [
        run(EAGLE_2, batch, sums("qa", value))
        for batch, value in zip((1, 16), speedups, strict=True)
    ]
    (eagle,) = report(*runs).crossings()

    assert eagle.batch is None
    assert eagle.line().endswith(told)
