"""Which drafters an engine loads, and what it says where it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectors.records import Method
from tests.tuner.engine.server.running import tiny_settings
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.drafters.registry import load_drafters
from tuner.engine.errors import StartupError
from tuner.engine.loading import load_target
from tuner.engine.model.weights import LoadedModel
from tuner.engine.settings import EngineSettings

WITHOUT_WEIGHTS = {Method.PROMPT_LOOKUP, Method.SUFFIX, Method.LOOKAHEAD, Method.SELF_SPARSE}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> EngineSettings:
    return tiny_settings(write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny"))


@pytest.fixture(scope="module")
def target(settings: EngineSettings) -> LoadedModel:
    return load_target(settings)


def test_every_method_that_has_what_it_needs_is_loaded(
    settings: EngineSettings, target: LoadedModel
) -> None:
    assert set(load_drafters(settings, target)) == {*WITHOUT_WEIGHTS, Method.DRAFT_MODEL}
    undrafted = load_drafters(replace(settings, draft="none"), target)
    assert set(undrafted) == WITHOUT_WEIGHTS
    assert all(drafter.method is method for method, drafter in undrafted.items())


def test_only_the_methods_named_are_loaded(settings: EngineSettings, target: LoadedModel) -> None:
    named = replace(settings, draft="/nowhere", methods=(Method.SUFFIX, Method.LOOKAHEAD))
    assert set(load_drafters(named, target)) == {Method.SUFFIX, Method.LOOKAHEAD}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": (Method.EAGLE,)}, "has no weights for tiny; give them with --head eagle=PATH"),
        ({"methods": (Method.DRAFT_MODEL,), "draft": "none"}, "give them with --draft PATH"),
        ({"methods": (Method.OFF,)}, "method 'off' drafts nothing"),
        ({"draft": "/nowhere"}, "draft model '/nowhere' does not exist"),
        ({"heads": {Method.MEDUSA: "/nowhere"}}, "medusa head '/nowhere' does not exist"),
        ({"heads": {Method.SUFFIX: "/nowhere"}}, "method 'suffix' has no head"),
        (
            {"heads": {Method.MEDUSA: "/nowhere"}, "methods": (Method.SUFFIX,)},
            "--head gives 'medusa', which --methods leaves out",
        ),
        ({"draft_schedule": "bold"}, "draft schedule 'bold' is not one of: constant, heuristic"),
        ({"suffix_store_tokens": 3}, "room for 4 tokens, got 3"),
        ({"sparse_window_tokens": 0}, "a window of 0 tokens"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_the_fix(
    settings: EngineSettings, target: LoadedModel, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(StartupError, match=words):
        load_drafters(replace(settings, **changes), target)  # type: ignore[arg-type]
