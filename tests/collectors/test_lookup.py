"""The index against a reader that searches the whole sequence each time."""

from __future__ import annotations

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.errors import InvalidRecord
from collectors.lookup import LookupIndex, Match

TOKENS = st.lists(st.integers(0, 3), max_size=40)
SPANS = st.tuples(st.integers(1, 4), st.integers(1, 4)).map(lambda pair: sorted(pair))


def searched(
    ids: list[int], k: int, min_n: int, max_n: int, match: Match = Match.LATEST
) -> list[int]:
    for n in range(max_n, min_n - 1, -1):
        starts = range(len(ids) - n)
        for start in starts if match is Match.EARLIEST else reversed(starts):
            if ids[start : start + n] == ids[len(ids) - n :]:
                return ids[start + n : start + n + k]
    return []


def indexed(ids: list[int], min_n: int = 1, max_n: int = 3) -> LookupIndex:
    index = LookupIndex(min_n, max_n)
    index.extend(ids)
    return index


@given(ids=TOKENS, k=st.integers(0, 9), span=SPANS)
def test_proposals_equal_a_full_search(ids: list[int], k: int, span: list[int]) -> None:
    low, high = span
    assert indexed(ids, low, high).propose(k) == searched(ids, k, low, high)


@given(ids=TOKENS, k=st.integers(0, 9), span=SPANS)
def test_the_earliest_match_is_copied_from_where_that_is_asked(
    ids: list[int], k: int, span: list[int]
) -> None:
    index = LookupIndex(*span, Match.EARLIEST)
    index.extend(ids)

    assert index.propose(k) == searched(ids, k, *span, Match.EARLIEST)


@given(ids=TOKENS, cuts=st.lists(st.integers(0, 40), max_size=6), span=SPANS)
def test_growing_in_pieces_equals_growing_at_once(
    ids: list[int], cuts: list[int], span: list[int]
) -> None:
    index = LookupIndex(*span)
    places = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    for start, end in itertools.pairwise(places):
        index.extend(ids[start:end])
        assert len(index) == end
        assert index.propose(5) == searched(ids[:end], 5, *span)


@given(ids=TOKENS, span=SPANS)
def test_a_wide_index_answers_a_narrower_window(ids: list[int], span: list[int]) -> None:
    low, high = span
    assert indexed(ids, 1, 4).propose(4, low, high) == searched(ids, 4, low, high)


def test_the_longest_match_wins_over_a_later_shorter_one() -> None:
    assert indexed([1, 2, 3, 9, 7, 3, 8, 1, 2, 3]).propose(2) == [9, 7]


def test_of_two_equal_matches_the_later_one_wins() -> None:
    assert indexed([1, 2, 5, 1, 2, 6, 1, 2], 2, 2).propose(1) == [6]


def test_the_suffix_does_not_match_itself() -> None:
    assert indexed([1, 2, 3]).propose(3) == []


def test_a_match_close_to_the_end_gives_fewer_tokens() -> None:
    assert indexed([4, 4]).propose(5) == [4]


@pytest.mark.parametrize(("min_n", "max_n"), [(0, 3), (3, 2), (-1, -1)])
def test_an_impossible_window_is_refused_by_name(min_n: int, max_n: int) -> None:
    with pytest.raises(InvalidRecord, match=f"got min_n {min_n} and max_n {max_n}"):
        LookupIndex(min_n, max_n)


@pytest.mark.parametrize(("min_n", "max_n"), [(1, 3), (2, 5), (3, 2)])
def test_asking_for_lengths_that_were_not_indexed_is_refused(min_n: int, max_n: int) -> None:
    with pytest.raises(InvalidRecord, match=f"lookup of {min_n} to {max_n} tokens"):
        indexed([1, 2, 1, 2], 2, 3).propose(1, min_n, max_n)


def test_the_cost_of_a_token_does_not_grow_with_the_sequence() -> None:
    def lines_run(repeats: int) -> int:
        """Return how many lines of Python 200 more tokens take."""
        index = indexed(list(range(200)) * repeats)
        lines = 0

        def count(_frame: object, event: str, _argument: object) -> object:
            nonlocal lines
            lines += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            for token in range(200):
                index.extend([token])
                assert len(index.propose(8)) == 8
        finally:
            sys.settrace(before)
        return lines

    assert lines_run(200) <= 1.02 * lines_run(4)
