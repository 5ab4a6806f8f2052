"""The scores against a drafter that is really walked over the answer, draft by draft."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.counterfactual import Index, LookupScore, score_lookup, score_suffix, sum_scores
from collectors.errors import InvalidRecord
from collectors.lookup import LookupIndex
from collectors.lookup_suffix import SuffixIndex

IDS = st.lists(st.integers(0, 3), max_size=30)


def decoded(
    prompt: list[int], output: list[int], k: int, index: Index
) -> tuple[int, int, int, int]:
    """Serve the answer with a drafter and count passes, verify passes, drafted, accepted."""
    index.extend(prompt)
    index.extend(output[:1])
    done, passes, verify, drafted, accepted = 1, 0, 0, 0, 0
    while done < len(output):
        draft = index.propose(min(k, len(output) - done))
        kept = 0
        while kept < len(draft) and draft[kept] == output[done + kept]:
            kept += 1
        passes, verify = passes + 1, verify + bool(draft)
        drafted, accepted = drafted + len(draft), accepted + kept
        index.extend(output[done : done + kept + 1])
        done += kept + 1
    return passes, verify, drafted, accepted


def scored(prompt: list[int], output: list[int], depth: int = 6) -> tuple[LookupScore, ...]:
    return score_lookup(prompt, output, lookup_min=1, lookup_max=3, depth=depth)


@given(prompt=IDS, output=IDS)
def test_every_k_equals_decoding_with_that_k(prompt: list[int], output: list[int]) -> None:
    for score in scored(prompt, output):
        counts = (score.passes, score.verify_passes, score.drafted, score.accepted)
        assert counts == decoded(prompt, output, score.k, LookupIndex(1, 3))


@given(prompt=IDS, output=IDS)
def test_every_k_of_suffix_decoding_equals_decoding_with_that_k(
    prompt: list[int], output: list[int]
) -> None:
    for score in score_suffix(prompt, output, depth=6):
        counts = (score.passes, score.verify_passes, score.drafted, score.accepted)
        assert counts == decoded(prompt, output, score.k, SuffixIndex())


@given(prompt=IDS, output=IDS)
def test_attempts_and_accepts_agree_with_the_totals(prompt: list[int], output: list[int]) -> None:
    for score in scored(prompt, output):
        assert sum(score.accepts) == score.accepted
        assert score.attempts[0] == score.verify_passes
        assert all(
            later <= kept for later, kept in zip(score.attempts[1:], score.accepts, strict=False)
        )


def test_a_copied_run_counts_once_a_pass_and_not_once_a_token() -> None:
    score = scored(list(range(10)), list(range(10)), depth=2)[1]
    assert (score.passes, score.accepted, score.attempts) == (3, 6, (3, 3))


def test_an_answer_of_one_token_needs_no_pass() -> None:
    assert [score.passes for score in scored([1, 2], [3], depth=2)] == [0, 0]


def test_scores_of_many_answers_add_up() -> None:
    one, other = scored([1, 2, 1], [2, 1, 2]), scored([5], [5, 5, 5, 5])
    assert sum_scores([one, other])[2].accepted == one[2].accepted + other[2].accepted
    assert sum_scores([]) == ()


def test_scores_of_different_depths_are_not_added() -> None:
    with pytest.raises(InvalidRecord, match="depth 2 and to depth 3"):
        sum_scores([scored([1], [1, 1], 2), scored([1], [1, 1], 3)])
    one, two = scored([1], [1, 1], 2)
    with pytest.raises(InvalidRecord, match="k 1 and k 2"):
        one.plus(two)


def test_a_depth_of_zero_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="depth must be >= 1, got 0"):
        scored([1], [1], 0)
