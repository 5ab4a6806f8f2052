"""The chained index against a reader that searches the whole sequence each time."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.errors import InvalidRecord
from collectors.lookup_suffix import SuffixIndex, SuffixStore
from tests.fixtures.work import lines_run

SPREAD, LEAST_PROB = 4.0, 0.1
TOKENS = st.lists(st.integers(0, 3), max_size=32)


def indexed(ids: list[int]) -> SuffixIndex:
    index = SuffixIndex(SPREAD, LEAST_PROB)
    index.extend(ids)
    return index


def searched(ids: list[int]) -> list[int]:
    """Try every length of suffix; those under three tokens only where no longer one matches."""
    starts = {n: [s for s in range(len(ids) - 1, 0, -1) if is_end(ids, s, n)] for n in range(1, 33)}
    lengths = [n for n in starts if starts[n] and (n >= 3 or not starts[3])]
    best: tuple[float, list[int]] = (0.0, [])
    for length in sorted(lengths, reverse=True):
        found = followed(ids, starts[length], min(16, int(SPREAD * length)))
        best = max(best, found, key=lambda each: each[0])
    return best[1]


def is_end(ids: list[int], start: int, n: int) -> bool:
    return start >= n and len(ids) > n and ids[start - n : start] == ids[len(ids) - n :]


def followed(ids: list[int], starts: list[int], limit: int) -> tuple[float, list[int]]:
    draft: list[int] = []
    score, prob = 0.0, 1.0
    while len(draft) < limit:
        nexts = [(ids + draft)[start + len(draft)] for start in starts]
        token = max(dict.fromkeys(nexts), key=nexts.count)
        prob *= nexts.count(token) / len(nexts)
        if prob < LEAST_PROB:
            break
        draft.append(token)
        score += prob
        starts = [start for start, found in zip(starts, nexts, strict=True) if found == token]
    return score, draft


@given(ids=TOKENS)
def test_proposals_equal_a_full_search(ids: list[int]) -> None:
    assert indexed(ids).propose(16) == searched(ids)


@given(ids=TOKENS, cuts=st.lists(st.integers(0, 32), max_size=5))
def test_growing_in_pieces_equals_growing_at_once(ids: list[int], cuts: list[int]) -> None:
    index = indexed([])
    places = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    for start, end in itertools.pairwise(places):
        index.extend(ids[start:end])
        assert len(index) == end
        assert index.propose(16) == searched(ids[:end])


@given(ids=TOKENS, k=st.integers(-1, 15))
def test_a_smaller_k_only_cuts_the_draft(ids: list[int], k: int) -> None:
    assert indexed(ids).propose(k) == indexed(ids).propose(16)[: max(0, k)]


def test_of_two_continuations_the_more_frequent_one_wins_over_the_later_one() -> None:
    assert indexed([1, 2, 5, 8, 1, 2, 5, 9, 1, 2, 6, 7, 1, 2]).propose(1) == [5]


def test_a_token_that_seldom_followed_is_not_drafted() -> None:
    nine = [token for other in range(10, 19) for token in (7, other)]
    assert indexed([*nine, 7]).propose(1) == [18]
    assert indexed([7, 30, 7, 31, *nine, 7]).propose(1) == []


def test_a_longer_match_gets_a_longer_draft() -> None:
    text = list(range(10, 40))
    assert [len(indexed([*text, *text[:n]]).propose(16)) for n in (1, 2, 4)] == [4, 8, 16]


def test_a_loop_is_drafted_beyond_the_end_of_the_text() -> None:
    assert indexed([1, 2, 3, 1, 2, 3]).propose(9) == [1, 2, 3] * 3


@pytest.mark.parametrize(("spread", "least_prob"), [(0, 0.1), (-1, 0.1), (1, 1.5), (1, -0.1)])
def test_an_impossible_measure_is_refused_by_name(spread: float, least_prob: float) -> None:
    with pytest.raises(InvalidRecord, match=f"got {spread} and {least_prob}"):
        SuffixIndex(spread, least_prob)


def test_the_work_of_a_token_does_not_grow_with_the_sequence() -> None:
    def lines(length: int) -> int:
        index = indexed(([*range(200), 7, 7] * (1 + length // 200))[:length])

        def go_on() -> None:
            for token in range(600):
                index.extend([token % 200])
                index.propose(8)

        return lines_run(go_on)

    assert lines(40_000) < 3 * lines(4_000)


def test_past_outputs_of_the_route_continue_what_the_sequence_has_never_seen() -> None:
    store = SuffixStore(100)
    store.add("chat", [4, 5, 6, 7])
    store.add("code", [4, 5, 9, 9])
    index = indexed([1, 4, 5])
    assert index.propose(2) == []
    assert index.propose(2, store.texts("chat")) == [6, 7]
    assert index.propose(2, store.texts("code")) == [9, 9]
    assert index.propose(2, store.texts("mail")) == []


def test_no_draft_goes_beyond_the_end_of_a_past_output() -> None:
    store = SuffixStore(100)
    store.add("chat", [4, 5, 6])
    store.add("chat", [8, 9])
    assert indexed([1, 4, 5]).propose(9, store.texts("chat")) == [6]
    assert indexed([1, 5, 6]).propose(9, store.texts("chat")) == []


def test_what_the_sequence_itself_is_sure_of_wins_over_past_outputs() -> None:
    store = SuffixStore(100)
    store.add("chat", [3, 9, 9])
    assert indexed([1, 2, 3, 4, 5, 1, 2, 3]).propose(2, store.texts("chat")) == [4, 5]


@given(outputs=st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=30))
def test_a_store_never_holds_more_than_its_bound_and_keeps_the_newest(
    outputs: list[list[int]],
) -> None:
    store = SuffixStore(16)
    for output in outputs:
        store.add("chat", output)
        assert sum(len(text) for text in store.texts("chat")) <= 16
        if output:
            assert store.texts("chat")[0].token_ids[-1 - min(7, len(output)) : -1] == output[-7:]


def test_a_store_without_room_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="got 3"):
        SuffixStore(3)
