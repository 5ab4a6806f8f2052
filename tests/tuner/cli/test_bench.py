from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tuner.bench.conftest import questions_file, roomy_model
from tests.tuner.cli.running import ran
from tuner.cli.bench_engine import parse_counts, parse_trees
from tuner.cli.errors import UsageError

__all__ = ["questions_file", "roomy_model"]


def test_counts_are_read_in_order_and_each_once() -> None:
    assert parse_counts("--batch", "16,1, 4,1") == (1, 4, 16)
    for text in ("0,2", "-1", "two", "1.5"):
        with pytest.raises(UsageError, match="--batch"):
            parse_counts("--batch", text)


def test_trees_are_read_as_nodes_and_width() -> None:
    wide, narrow = parse_trees("15x3, 8x2")

    assert (wide.nodes, wide.width, narrow.nodes, narrow.width) == (15, 3, 8, 2)
    assert parse_trees("none") == ()
    for text in ("15", "15x", "x3", "15x3x2"):
        with pytest.raises(UsageError, match="NODESxWIDTH"):
            parse_trees(text)


@pytest.mark.parametrize("given", [("--methods", "all"), ("--prompts", "questions.jsonl")])
def test_methods_and_prompts_go_together(given: tuple[str, str]) -> None:
    code, _, err = ran("bench", "engine", *given)

    assert code == 2
    assert "--methods and --prompts go together" in err


def test_one_command_compares_methods_and_says_what_holds(
    roomy_model: Path, questions_file: Path
) -> None:
    engine = ("--model", str(roomy_model), "--draft", str(roomy_model), "--threads", "1")
    methods = ("--methods", "draft_model,prompt_lookup", "--prompts", str(questions_file))
    sizes = ("--max-tokens", "8", "--batch", "1,2", "--ks", "3", "--limit", "2")
    code, out, err = ran("bench", "engine", *engine, *methods, *sizes, "--no-peers", "--json", "-")

    figures = json.loads(out)
    assert code == 0, err
    assert set(figures) == {
        *("methods", "recommended", "groups", "claims", "crossings", "sampled", "not_loaded")
    }
    assert [(each["method"], each["batch"]) for each in figures["recommended"]] == [
        (method, batch) for batch in (1, 2) for method in ("draft_model", "prompt_lookup")
    ]
    assert {row["batch"] for row in figures["methods"]} == {1, 2}
    assert next(claim["holds"] for claim in figures["claims"]) in (True, False)
    assert "Every method over all questions" in err
    assert "Recommended: chosen on half of the questions" in err
    assert "2 of 4 questions of questions.jsonl" in err


def test_one_command_compares_every_loaded_method_with_plain_decoding(roomy_model: Path) -> None:
    engine = ("--model", str(roomy_model), "--draft", "none", "--threads", "1")
    code, out, err = ran(
        "bench", "exactness", *engine, "--prompts", "1", "--tokens", "4", "--json", "-"
    )

    figures = json.loads(out)
    assert code == 0, err
    assert figures["wrong"] == 0
    assert figures["answers"] == len(figures["cases"])
    assert {case["batch"] for case in figures["cases"]} == {1, 8}
    assert "Compared" in err
    assert "Not loaded, so not tested: draft_model" in err
