"""What an adaptive Setting may be, and what it leaves as it was."""

from __future__ import annotations

import pytest

from collectors.errors import InvalidRecord
from collectors.records import OFF, Method, Plan, Setting

ADAPTIVE = Setting(method=Method.DRAFT_MODEL, k=7, is_adaptive=True)


def test_an_adaptive_setting_is_read_back_and_named() -> None:
    assert Setting.from_dict(ADAPTIVE.to_dict()) == ADAPTIVE
    assert ADAPTIVE.label == "draft_model k=7 adaptive"


def test_a_setting_stored_before_there_was_an_adaptive_mode_reads_and_keeps_its_digest() -> None:
    stored = {
        "method": "draft_model",
        "k": 3,
        "tree_nodes": 0,
        "tree_width": 0,
        "rule": "rejection",
        "lookup_min": 0,
        "lookup_max": 0,
        "drafter": "",
    }
    assert Setting.from_dict(stored) == Setting(method=Method.DRAFT_MODEL, k=3)
    assert Setting.from_dict(stored).to_dict() == stored


def test_a_plan_with_the_adaptive_mode_has_another_digest() -> None:
    fixed = Setting(method=Method.DRAFT_MODEL, k=7)
    assert Plan(default=ADAPTIVE).digest != Plan(default=fixed).digest


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"method": "off"}, "off cannot be adaptive; leave it out"),
        ({"method": "prompt_lookup", "k": 3}, "prompt_lookup cannot be adaptive"),
        ({"method": "lookahead", "k": 3}, "lookahead cannot be adaptive"),
        (
            {"method": "eagle", "k": 3, "tree_nodes": 5, "tree_width": 3},
            "a tree of 5 cannot be adaptive",
        ),
    ],
)
def test_what_has_no_chance_for_each_token_of_a_chain_cannot_be_adaptive(
    form: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRecord, match=message):
        Setting.from_dict({**form, "is_adaptive": True})


def test_the_methods_that_can_adapt_say_so() -> None:
    assert {method for method in Method if not method.can_adapt} == {
        OFF.method,
        Method.PROMPT_LOOKUP,
        Method.LOOKAHEAD,
    }
    assert ADAPTIVE.method.can_adapt
