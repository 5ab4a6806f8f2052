from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.records import OFF, Method, Setting
from policy.divergence import Outcome
from tuner.bench.exactness import (
    BATCH,
    DRAFT_LENGTHS,
    Exactness,
    ExactnessBench,
    ExactnessCase,
    ExactnessOptions,
)
from tuner.engine.settings import EngineSettings

EAGLE = Setting(method=Method.EAGLE, k=3)
TREE = Setting(method=Method.EAGLE, k=3, tree_nodes=5, tree_width=3)
SPARSE = Setting(method=Method.SELF_SPARSE, k=3)


@pytest.fixture(scope="module")
def compared(roomy_model: Path) -> tuple[Exactness, int, int]:
    engine = EngineSettings(
        model=str(roomy_model),
        draft=str(roomy_model),
        methods=(Method.DRAFT_MODEL, Method.LOOKAHEAD, Method.SELF_SPARSE),
        threads=1,
    )
    bench = ExactnessBench(ExactnessOptions(engine=engine, num_prompts=3, num_tokens=12))
    cases: list[ExactnessCase] = []
    found = bench.run(on_case=cases.append)
    return found, len(cases), bench.num_cases


def test_every_loaded_method_is_compared_at_every_length_alone_and_in_a_batch(
    compared: tuple[Exactness, int, int],
) -> None:
    found, calls, told = compared

    cases = [(case.setting.method, case.setting.k, case.batch) for case in found.cases]
    methods = (Method.DRAFT_MODEL, Method.LOOKAHEAD, Method.SELF_SPARSE)
    assert sorted(cases) == sorted(
        [
            *((Method.OFF, 0, batch) for batch in (1, BATCH)),
            *((method, 8, batch) for method in methods if method.can_adapt for batch in (1, BATCH)),
            *(
                (method, k, batch)
                for method in methods
                for k in DRAFT_LENGTHS
                for batch in (1, BATCH)
            ),
        ]
    )
    assert calls == told == len(cases)
    assert found.num_answers == 3 * len(cases)
    assert Method.MEDUSA in found.not_loaded


def test_answers_are_those_of_plain_decoding_and_every_method_drafted(
    compared: tuple[Exactness, int, int],
) -> None:
    found, _, _ = compared

    assert found.num_wrong == 0
    fixed = [case for case in found.cases if not case.setting.is_adaptive]
    assert all(case.drafted for case in fixed if case.setting != OFF)
    assert all(case.tokens_per_pass == 1 for case in found.cases if case.setting == OFF)
    assert json.loads(json.dumps(found.to_dict()))["wrong"] == 0


def case(setting: Setting, outcomes: dict[Outcome, int], drafted: int) -> ExactnessCase:
    return ExactnessCase(
        setting=setting,
        batch=1,
        outcomes=outcomes,
        drafted=drafted,
        margins=(),
        tokens_per_pass=1.0,
    )


def test_the_count_is_told_and_what_was_not_put_to_the_test() -> None:
    found = Exactness(
        cases=(
            case(OFF, {Outcome.IDENTICAL: 2}, 0),
            case(EAGLE, {Outcome.IDENTICAL: 1, Outcome.NEAR_TIE: 1}, 9),
            case(TREE, {Outcome.IDENTICAL: 1, Outcome.SUSPICIOUS: 1}, 9),
            case(SPARSE, {Outcome.IDENTICAL: 2}, 0),
        ),
        not_loaded=(Method.PARD,),
    )

    assert found.lines() == [
        "Compared 8 answers, alone and in batches of 8. Methods: 1, chains: 2 (0 adaptive), "
        "trees: 1.",
        "1 differences that rounding does not explain.",
        "Drafted nothing, so not tested: self_sparse",
        "Not loaded, so not tested: pard",
    ]
