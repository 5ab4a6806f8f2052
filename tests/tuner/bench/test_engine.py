from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.bench.engine import EngineBench, EngineBenchOptions, bench_engine, num_jobs
from tuner.engine.settings import EngineSettings

NUM_TOKENS = 12


@pytest.fixture(scope="module")
def result(roomy_model: Path) -> tuple[EngineBench, int, int]:
    settings = EngineSettings(model=str(roomy_model), draft=str(roomy_model), threads=1)
    options = EngineBenchOptions(engine=settings, num_tokens=NUM_TOKENS, rounds=1)
    jobs: list[int] = []
    bench = bench_engine(options, on_job=lambda: jobs.append(1))
    return bench, len(jobs), num_jobs(options)


def test_every_case_with_a_peer_has_both_engines_tokens_per_pass(
    result: tuple[EngineBench, int, int],
) -> None:
    cases = {case.case: case for case in result[0].peer_cases()}

    assert set(cases) == {"plain_b1", "draft_k5_b1", "lookup_earliest_k5_b1", "plain_b8"}
    assert all(case.ratio is not None and case.ratio > 0 for case in cases.values())
    for case in cases.values():
        assert case.tokens_per_pass == case.peer_tokens_per_pass
    for plain in ("plain_b1", "plain_b8"):
        assert cases[plain].tokens_per_pass == 1
    # The draft is the target: eleven tokens follow the prefill, in two passes.
    assert cases["draft_k5_b1"].tokens_per_pass == pytest.approx(11 / 2)


def test_lookup_from_the_latest_match_has_no_peer_but_a_line(
    result: tuple[EngineBench, int, int],
) -> None:
    (case,) = [case for case in result[0].cases if case.name == "lookup_k5_b1"]

    assert (case.peer, case.ratio, case.answer_ratio, case.peer_tokens_per_pass) == (
        "",
        None,
        None,
        None,
    )
    assert case.tokens_per_pass >= 1


def test_the_figures_are_whole_and_fit_for_json(result: tuple[EngineBench, int, int]) -> None:
    bench, jobs, told = result
    figures = json.loads(json.dumps(bench.to_dict(), allow_nan=False))

    assert jobs == told
    assert figures["acceptance"] == 1
    assert set(figures["overhead_ratios"]) == {"plain_b8", "draft_k5_b8", "sampled_b8"}
    assert all(0 < ratio < 1 for ratio in figures["overhead_ratios"].values())
    assert any("outside the models' passes" in line for line in bench.lines())
