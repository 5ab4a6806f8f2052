"""Kinds of first differences, and when an arm is worse than its control."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.divergence import (
    Comparison,
    GreedyAnswer,
    Outcome,
    Verdict,
    classify,
    measured_noise,
    report,
)
from policy.errors import InvalidInput


def answer(*token_ids: int, margins: tuple[float, ...] = ()) -> GreedyAnswer:
    return GreedyAnswer(token_ids=token_ids, margins=margins)


def compared(outcome: Outcome, count: int, margin: float | None = None) -> list[Comparison]:
    position = None if outcome in (Outcome.IDENTICAL, Outcome.ERROR) else 3
    return [Comparison(outcome=outcome, position=position, margin=margin)] * count


def test_equal_answers_are_identical() -> None:
    assert classify(answer(1, 2), answer(1, 2)).outcome is Outcome.IDENTICAL
    assert classify(answer(), answer()).outcome is Outcome.IDENTICAL


def test_a_split_within_the_noise_is_a_near_tie() -> None:
    found = classify(answer(1, 2, 3, margins=(5, 5e-5, 4)), answer(1, 9, 8, margins=(5, 3e-5, 1)))
    assert (found.outcome, found.position, found.margin) == (Outcome.NEAR_TIE, 1, 3e-5)


def test_a_split_beyond_the_noise_is_suspicious() -> None:
    found = classify(answer(1, 2, margins=(5, 0.2)), answer(1, 3, margins=(5, 0.3)))
    assert (found.outcome, found.position, found.margin) == (Outcome.SUSPICIOUS, 1, 0.2)


def test_only_the_first_split_counts() -> None:
    found = classify(answer(1, 2, 3, margins=(9, 0, 9)), answer(1, 4, 5))
    assert found.outcome is Outcome.NEAR_TIE


@pytest.mark.parametrize("margin", [math.nan, math.inf, -1.0])
def test_a_split_with_an_impossible_margin_is_suspicious(margin: float) -> None:
    assert classify(answer(1, margins=(margin,)), answer(2)).outcome is Outcome.SUSPICIOUS


def test_an_answer_that_ends_early_differs_in_length() -> None:
    found = classify(answer(1, 2), answer(1, 2, 3))
    assert (found.outcome, found.position) == (Outcome.LENGTH, 2)


def test_ending_by_a_near_tie_with_the_end_token_is_a_near_tie() -> None:
    found = classify(answer(1, 2, margins=(5, 5, 1e-6)), answer(1, 2, 3, margins=(5, 5, 1e-6)))
    assert found.outcome is Outcome.NEAR_TIE


def test_an_error_is_no_difference() -> None:
    broken = GreedyAnswer(token_ids=(1,), error="timeout after 30 s")
    found = classify(answer(1, 2), broken)
    assert found.outcome is Outcome.ERROR
    assert "timeout after 30 s" in found.reason


@given(
    left=st.lists(st.integers(0, 2), max_size=6),
    right=st.lists(st.integers(0, 2), max_size=6),
    margins=st.lists(st.floats(), max_size=7),
)
def test_the_position_is_where_the_common_run_ends(
    left: list[int], right: list[int], margins: list[float]
) -> None:
    found = classify(answer(*left, margins=tuple(margins)), answer(*right))
    if found.position is None:
        assert left == right
    else:
        assert left[: found.position] == right[: found.position]
        assert (
            left[found.position : found.position + 1] != right[found.position : found.position + 1]
        )


def test_the_noise_is_measured_on_the_control_and_never_below_the_number_format() -> None:
    control = compared(Outcome.SUSPICIOUS, 1, 2e-3) + compared(Outcome.NEAR_TIE, 1, 1e-5)
    assert measured_noise(control) == 2e-3
    assert measured_noise([]) == 1e-4
    with pytest.raises(InvalidInput, match="unknown dtype 'int3'; use one of: float32"):
        measured_noise([], dtype="int3")


def test_an_arm_like_its_control_passes() -> None:
    arm = compared(Outcome.IDENTICAL, 38) + compared(Outcome.NEAR_TIE, 2, 1e-5)
    control = compared(Outcome.IDENTICAL, 39) + compared(Outcome.NEAR_TIE, 1, 1e-5)
    found = report(arm, control)
    assert found.verdict is Verdict.PASS
    assert found.exact_match is not None
    assert found.exact_match.mean == 0.95
    assert found.split_positions == (3, 3)
    assert not found.is_more_than_control


def test_more_near_ties_than_the_control_has_fail() -> None:
    arm = compared(Outcome.IDENTICAL, 25) + compared(Outcome.NEAR_TIE, 15, 1e-5)
    found = report(arm, compared(Outcome.IDENTICAL, 40))
    assert found.verdict is Verdict.FAIL
    assert found.p_value < 1e-4
    assert "15 of 40 pairs part, in the control 0 of 40" in found.reasons[0]


def test_one_suspicious_pair_fails_whatever_the_shares() -> None:
    arm = compared(Outcome.IDENTICAL, 99) + compared(Outcome.SUSPICIOUS, 1, 0.7)
    found = report(arm, compared(Outcome.IDENTICAL, 100))
    assert (found.verdict, found.is_more_than_control) == (Verdict.FAIL, False)


def test_errors_are_counted_apart_from_the_share() -> None:
    arm = compared(Outcome.IDENTICAL, 30) + compared(Outcome.ERROR, 10)
    found = report(arm, compared(Outcome.IDENTICAL, 30))
    assert found.exact_match is not None
    assert (found.exact_match.mean, found.outcomes[Outcome.ERROR]) == (1.0, 10)


def test_few_pairs_are_inconclusive_and_none_are_no_data() -> None:
    few = compared(Outcome.IDENTICAL, 3)
    assert report(few, compared(Outcome.IDENTICAL, 40)).verdict is Verdict.INCONCLUSIVE
    assert report(compared(Outcome.IDENTICAL, 40), []).verdict is Verdict.INCONCLUSIVE
    nothing = report(compared(Outcome.ERROR, 3), [])
    assert (nothing.verdict, nothing.exact_match) == (Verdict.NO_DATA, None)


def test_the_false_alarm_rate_holds() -> None:
    """Both arms part in 10 % of 40 pairs: at most 1 % of 40 x 40 outcomes may be called worse."""
    chances = [math.comb(40, n) * 0.1**n * 0.9 ** (40 - n) for n in range(41)]
    alarm = sum(
        chances[n] * chances[m]
        for n in range(20)
        for m in range(20)
        if report(
            compared(Outcome.NEAR_TIE, n) + compared(Outcome.IDENTICAL, 40 - n),
            compared(Outcome.NEAR_TIE, m) + compared(Outcome.IDENTICAL, 40 - m),
        ).is_more_than_control
    )
    assert 0 < alarm < 0.01


@pytest.mark.parametrize("noise", [-1.0, math.nan, math.inf])
def test_an_impossible_noise_is_named(noise: float) -> None:
    with pytest.raises(InvalidInput, match="noise must be 0 or more"):
        classify(answer(1), answer(2), noise=noise)
    with pytest.raises(InvalidInput, match="noise must be 0 or more"):
        report([], [], noise=noise)


def test_an_impossible_false_alarm_rate_is_named() -> None:
    with pytest.raises(InvalidInput, match="false_alarm must be inside 0 to 1, got 1"):
        report([], [], false_alarm=1)
