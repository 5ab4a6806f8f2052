"""A grammar fills every slot, keeps what is tagged, and is the same for the same seed."""

from __future__ import annotations

import random

import pytest

from tuner.engine.training.errors import MaterialError
from tuner.engine.training.grammar import Grammar

SEEDS = range(40)


def _texts(start: str, **lists: list[str]) -> set[str]:
    grammar = Grammar(lists)
    return {grammar.write(random.Random(seed), start) for seed in SEEDS}


def test_slots_are_filled_to_any_depth_and_every_entry_comes_up() -> None:
    found = _texts("say", say=["{who} sings"], who=["{size} bird", "nobody"], size=["a", "one"])
    assert found == {"a bird sings", "one bird sings", "nobody sings"}


def test_the_same_seed_gives_the_same_text() -> None:
    grammar = Grammar({"say": ["{1-900} {1-900} {who}"], "who": ["a", "b", "c"]})
    first, again = (grammar.write(random.Random(7), "say") for _ in range(2))
    assert first == again


def test_a_tag_stands_for_one_entry_and_two_tags_for_two() -> None:
    names = ["Ada", "Bo", "Cy", "Di", "Ed", "Flo"]
    for text in _texts("say", say=["{name#a} {name#b} {name#a}"], name=names):
        first, second, third = text.split()
        assert first == third != second


def test_a_tag_holds_in_texts_drawn_inside_the_text() -> None:
    for text in _texts("say", say=["{name#a}: {line}"], line=["I, {name#a}"], name=["Ada", "Bo"]):
        assert text in {"Ada: I, Ada", "Bo: I, Bo"}


def test_a_number_lies_in_its_range_and_its_ends_come_up() -> None:
    assert _texts("say", say=["{3-5}"]) == {"3", "4", "5"}


def test_several_entries_are_all_different() -> None:
    for text in _texts("say", say=["{2-3*part}"], part=["x", "y", "z"]):
        parts = text.split()
        assert len(parts) in {2, 3}
        assert len(set(parts)) == len(parts)


def test_an_article_fits_its_word_and_a_capital_begins_the_text() -> None:
    assert _texts("say", say=["{an job}"], job=["actor", "baker"]) == {"an actor", "a baker"}
    assert _texts("say", say=["{^an job}"], job=["actor"]) == {"An actor"}


def test_braces_that_are_no_slots_stay() -> None:
    assert _texts("say", say=["x = {} and {'a': 1}"]) == {"x = {} and {'a': 1}"}


def test_a_source_writes_its_own_text() -> None:
    grammar = Grammar({"say": ["<{page}>"]}, {"page": lambda _rng: "from {outside}"})
    assert grammar.write(random.Random(1), "say") == "<from {outside}>"


def test_a_missing_list_and_a_list_that_is_too_short_are_named() -> None:
    with pytest.raises(MaterialError, match="'who', which is missing"):
        _texts("say", say=["{who}"])
    with pytest.raises(MaterialError, match="'who' holds fewer than 3"):
        _texts("say", say=["{3*who}"], who=["a", "b"])
