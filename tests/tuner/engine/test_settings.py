"""What of the settings is pinned for a replay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.engine.settings import EngineSettings, drafting_of


@pytest.mark.parametrize(
    "change",
    [
        {"draft_dtype": "float16"},
        {"draft_min_confidence": 0.3},
        {"draft_schedule": "heuristic"},
        {"sparse_window_tokens": 64},
        {"suffix_store_tokens": 1000},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_what_is_drafted_is_pinned(change: dict[str, object]) -> None:
    told = drafting_of(EngineSettings(draft_dtype="float32"))
    changed = drafting_of(replace(EngineSettings(draft_dtype="float32"), **change))  # type: ignore[arg-type]
    assert {name for name in told if told[name] != changed[name]} == set(change)


def test_a_draft_dtype_left_to_the_machine_is_pinned_as_what_it_became() -> None:
    assert drafting_of(EngineSettings())["draft_dtype"] in ("bfloat16", "float32")
