from __future__ import annotations

import pytest

from collectors.errors import InvalidRecord
from collectors.records import OFF, AcceptanceRule, Method, Setting
from tuner.cli.errors import UsageError
from tuner.cli.options import parse_setting


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("off", OFF),
        ("draft_model:3", Setting(method=Method.DRAFT_MODEL, k=3)),
        (
            "draft_model:3:token_match",
            Setting(method=Method.DRAFT_MODEL, k=3, rule=AcceptanceRule.TOKEN_MATCH),
        ),
        ("prompt_lookup:5", Setting(method=Method.PROMPT_LOOKUP, k=5, lookup_min=1, lookup_max=3)),
        ("eagle:4:16:4", Setting(method=Method.EAGLE, k=4, tree_nodes=16, tree_width=4)),
        (
            "medusa:3:16:4:typical",
            Setting(
                method=Method.MEDUSA,
                k=3,
                tree_nodes=16,
                tree_width=4,
                rule=AcceptanceRule.TYPICAL,
            ),
        ),
        ("draft_model:7:adaptive", Setting(method=Method.DRAFT_MODEL, k=7, is_adaptive=True)),
        (
            "eagle:5:adaptive:token_match",
            Setting(method=Method.EAGLE, k=5, is_adaptive=True, rule=AcceptanceRule.TOKEN_MATCH),
        ),
        ('{"method": "mtp", "k": 2}', Setting(method=Method.MTP, k=2)),
    ],
)
def test_a_setting_is_read_from_its_short_form_or_json(text: str, setting: Setting):
    assert parse_setting(text) == setting


@pytest.mark.parametrize(
    "text", ["draft_model:x", "eagle:4:16", "eagle:4:16:x:typical", "off:adaptive", "{"]
)
def test_what_has_no_known_form_is_refused_with_an_example(text: str):
    with pytest.raises(UsageError, match=r"eagle:4:16:4|not JSON"):
        parse_setting(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("magic:3", "unknown method 'magic'"),
        ("draft_model:3:16:4", "draft_model drafts no trees"),
        ("eagle:4:16:4:hope", "unknown rule 'hope'"),
        ("prompt_lookup:3:adaptive", "prompt_lookup cannot be adaptive"),
        ("eagle:4:16:4:adaptive", "a tree of 16 cannot be adaptive"),
    ],
)
def test_an_impossible_setting_says_why(text: str, message: str):
    with pytest.raises(InvalidRecord, match=message):
        parse_setting(text)
