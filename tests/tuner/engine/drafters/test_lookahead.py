"""The window against a target that is known, and the tree that window and candidates make."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.records import MAX_DRAFT_LENGTH, MAX_TREE_NODES, Method, Setting
from tests.tuner.engine.drafters.asks import ask
from tuner.engine.drafters.base import Draft, Seen, depths_of
from tuner.engine.drafters.lookahead import LookaheadDrafter

TEXT = random.Random(5).choices(range(1000), k=400)
"""What the target says at each place, whatever stands before it."""


def outputs_of(draft: Draft, length: int) -> list[int]:
    """The token that the target puts after the last committed one and after each of the draft."""
    return [TEXT[length], *(TEXT[length + depth] for depth in depths_of(draft.parents or ()))]


def paths_of(draft: Draft) -> set[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(draft.token_ids, draft.parents or (), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return set(paths)


def step(drafter: LookaheadDrafter, length: int, setting: Setting, **parts: object) -> Draft:
    (draft,) = drafter.propose([ask(TEXT[:length], setting, **parts)])  # type: ignore[arg-type]
    drafter.see([Seen(slot=0, draft=draft, outputs=outputs_of(draft, length))])
    return draft


@pytest.mark.parametrize("k", [2, 5, 8, 16])
def test_the_window_comes_to_hold_what_the_target_says_at_each_place(k: int) -> None:
    setting, drafter, length = Setting(method=Method.LOOKAHEAD, k=k), LookaheadDrafter(), 30
    for _ in range(6):
        draft = step(drafter, length, setting)
        length += 1
    path = tuple(TEXT[length - 1 : length - 1 + k])
    assert path in paths_of(draft)
    assert draft.depth == k


def test_columns_stay_at_their_places_when_draft_tokens_are_kept() -> None:
    setting, drafter, length = Setting(method=Method.LOOKAHEAD, k=12), LookaheadDrafter(), 30
    for num_new in (1, 1, 1, 1, 3):
        step(drafter, length, setting)
        length += num_new
    draft = step(drafter, length, setting)
    known = 12 - 2
    assert tuple(TEXT[length : length + known]) in paths_of(draft)
    assert tuple(TEXT[length : length + 12]) not in paths_of(draft)


def test_ngrams_of_the_window_are_offered_where_their_first_token_comes_up() -> None:
    setting, drafter = Setting(method=Method.LOOKAHEAD, k=8), LookaheadDrafter()
    for length in range(30, 37):
        step(drafter, length, setting)
    elsewhere = [*TEXT[:37], TEXT[39]]
    (draft,) = drafter.propose([ask(elsewhere, setting)])
    assert tuple(TEXT[40:44]) in paths_of(draft)


def test_ngrams_of_the_text_are_offered_at_once() -> None:
    (draft,) = LookaheadDrafter().propose(
        [ask([1, 2, 3, 4, 9, 8, 7, 1], Setting(method=Method.LOOKAHEAD, k=5))]
    )
    assert (2, 3, 4) in paths_of(draft)


@given(
    k=st.integers(1, MAX_DRAFT_LENGTH),
    num_nodes=st.integers(1, MAX_TREE_NODES),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    steps=st.lists(st.integers(1, 4), max_size=6),
)
def test_every_tree_keeps_within_its_bounds_and_names_no_path_twice(
    k: int, num_nodes: int, prompt: list[int], steps: list[int]
) -> None:
    setting, drafter, ids = Setting(method=Method.LOOKAHEAD, k=k), LookaheadDrafter(), list(prompt)
    dice = random.Random(len(prompt))
    for num_new in [*steps, 1]:
        whole = ask(ids, setting)
        (draft,) = drafter.propose([whole if num_new % 2 else replace(whole, num_nodes=num_nodes)])
        assert draft.parents is not None
        assert len(draft.token_ids) <= (MAX_TREE_NODES if num_new % 2 else num_nodes)
        assert draft.depth <= k
        assert all(parent < node for node, parent in enumerate(draft.parents))
        assert len(paths_of(draft)) == len(draft.token_ids)
        outputs = [dice.randrange(4) for _ in range(1 + len(draft.token_ids))]
        drafter.see([Seen(slot=0, draft=draft, outputs=outputs)])
        ids.extend(dice.randrange(4) for _ in range(num_new))


def test_near_the_end_of_an_answer_the_tree_gets_no_deeper_than_asked() -> None:
    setting, drafter = Setting(method=Method.LOOKAHEAD, k=8), LookaheadDrafter()
    step(drafter, 30, setting)
    assert step(drafter, 31, setting, k=3).depth == 3


def test_a_moved_row_takes_its_window_along() -> None:
    setting = Setting(method=Method.LOOKAHEAD, k=5)
    stays, moves = LookaheadDrafter(), LookaheadDrafter()
    for length in range(30, 36):
        step(stays, length, setting)
        step(moves, length, setting)
    moves.move(0, 3)
    assert moves.propose([ask(TEXT[:36], setting, slot=3)]) == stays.propose(
        [ask(TEXT[:36], setting)]
    )
    assert moves.propose([ask(TEXT[:36], setting)]) != stays.propose([ask(TEXT[:36], setting)])
