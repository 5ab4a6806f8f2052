"""How confidences become chances that a drafted token is kept."""

from __future__ import annotations

import pytest

from collectors.records import Method
from tuner.engine.chances import Chances, Kind

KIND = Kind(Method.EAGLE, is_greedy=True)
OTHER = Kind(Method.EAGLE, is_greedy=False)


def taught(route: str, confidence: float, kept: int, of: int, kind: Kind = KIND) -> Chances:
    chances = Chances()
    for number in range(of):
        chances.learn(route, kind, [confidence], int(number < kept))
    return chances


def test_a_confidence_never_seen_is_taken_at_its_word() -> None:
    assert Chances().judge("chat", KIND, 0, 0.75) == pytest.approx(0.75)


def test_a_draft_too_sure_of_itself_is_believed_less() -> None:
    assert taught("chat", 0.97, 50, 100).judge("chat", KIND, 0, 0.97) == pytest.approx(
        0.5, abs=0.05
    )


def test_a_flat_draft_that_is_kept_is_believed_more() -> None:
    chances = taught("chat", 0.15, 90, 100, OTHER)
    assert chances.judge("chat", OTHER, 0, 0.15) > 0.8
    assert chances.judge("chat", KIND, 0, 0.15) == pytest.approx(0.15)


def test_a_route_without_counts_leans_on_those_of_its_method() -> None:
    chances = taught("chat", 0.75, 0, 100)
    assert chances.judge("code", KIND, 0, 0.75) < 0.1
    for _ in range(100):
        chances.learn("code", KIND, [0.75], 1)
    assert chances.judge("code", KIND, 0, 0.75) > 0.8
    assert chances.judge("chat", KIND, 0, 0.75) < 0.2


def test_what_follows_the_first_rejected_token_teaches_nothing() -> None:
    chances = Chances()
    for _ in range(50):
        chances.learn("chat", KIND, [0.75, 0.75, 0.75], 0)
    assert chances.judge("chat", KIND, 0, 0.75) < 0.1
    assert chances.judge("chat", KIND, 1, 0.75) == pytest.approx(0.75)


def test_what_a_position_will_turn_out_to_be_follows_from_those_looked_at() -> None:
    chances = Chances()
    for confidence in (0.25, 0.25, 0.25, 0.85):
        chances.judge("chat", KIND, 0, confidence)
    assert chances.spread("chat", KIND, 0) == [
        (0.75, pytest.approx(0.25)),
        (0.25, pytest.approx(0.85)),
    ]
    assert chances.spread("chat", KIND, 1) == [(1.0, 1.0)]


def test_shares_follow_what_is_looked_at_however_long_it_goes_on() -> None:
    chances = Chances()
    for number in range(20000):
        chances.judge("chat", KIND, 0, 0.25 if number % 50 == 0 else 0.85)
    (rare, _), (often, _) = chances.spread("chat", KIND, 0)
    assert rare == pytest.approx(0.02, abs=0.01)
    assert rare + often == pytest.approx(1.0)


def test_what_a_draft_gains_by_position_ends_where_no_confidence_pays() -> None:
    chances = Chances()
    for position in range(4):
        for confidence in (0.25, 0.75):
            chances.judge("chat", KIND, position, confidence)
    assert [*chances.surpluses("chat", KIND, 9, price=0.5)] == [
        pytest.approx(0.5 * (0.75 - 0.5)),
        pytest.approx(0.5 * 0.5 * (0.75**2 - 0.5)),
        0.0,
    ]
    assert len([*chances.surpluses("chat", KIND, 2, price=0.0)]) == 2


def test_old_counts_give_way() -> None:
    chances = taught("chat", 0.75, 1000, 1000)
    for _ in range(500):
        chances.learn("chat", KIND, [0.75], 0)
    assert chances.judge("chat", KIND, 0, 0.75) < 0.3
