"""Budgets are kept to the letter."""

from dataclasses import replace

import pytest

from collectors.records import load_level_of
from policy.budgets import LEAST_WORTH, MOST_WORTH, EditBudget, TokenBudget
from policy.options import ControlOptions
from policy.types import Window
from tests.policy.worlds import mix, window

LEVEL = load_level_of(8)


def served(tokens: int, busy_s: float) -> Window:
    """A window that gave so many tokens in so many seconds of steps."""
    return window(mixes=[replace(mix({"a": 10.0}), tokens=tokens, busy_s=busy_s)])


def test_exploration_never_exceeds_its_share_of_what_was_served() -> None:
    options = ControlOptions(exploring_share=0.02, granted_windows=0)
    budget, spent = TokenBudget(options), 0.0
    for served in range(1, 2001):
        budget.earn(window(mixes=[mix({"a": 6.0, "b": 2.0})]))
        if budget.affords(2.0):
            budget.spend(2.0)
            spent += 2.0
        assert spent <= 0.02 * 8 * served
    assert spent > 0.019 * 8 * 2000


def test_the_first_stretch_is_granted_and_not_granted_twice() -> None:
    budget = TokenBudget(ControlOptions(exploring_share=0.02, granted_windows=1000))
    assert not budget.affords(1.0)
    budget.earn(window(mixes=[mix({"a": 10.0})]))
    spent = 0
    while budget.affords(10.0):
        budget.spend(10.0)
        spent += 1
    assert spent == 20
    for _ in range(999):
        budget.earn(window(mixes=[mix({"a": 10.0})]))
    assert not budget.affords(10.0)


def test_exploring_must_bring_more_the_less_is_left() -> None:
    budget = TokenBudget(ControlOptions(exploring_share=0.02, granted_windows=1000))
    budget.earn(window(mixes=[mix({"a": 10.0})]))
    prices = [budget.price]
    while budget.affords(10.0):
        budget.spend(10.0)
        prices.append(budget.price)
    assert prices == sorted(prices)
    assert prices[0] < LEAST_WORTH
    assert prices[-1] == pytest.approx(MOST_WORTH)


def test_before_anything_was_served_exploring_has_its_least_price() -> None:
    assert 0 < TokenBudget(ControlOptions()).price < LEAST_WORTH


def test_windows_that_risk_more_are_few() -> None:
    budget = TokenBudget(ControlOptions(risky_share=0.003, granted_windows=1000))
    taken = 0
    while budget.may_risk:
        budget.risk(100.0)
        budget.risk(90.0)
        budget.earn(served(95, 1.0))
        taken += 1
    assert taken == 3


@pytest.mark.parametrize(("tokens", "busy_s", "left"), [(100, 1.0, 1), (99, 1.0, 0), (100, 0.0, 0)])
def test_a_risk_that_does_no_harm_is_given_back(tokens: int, busy_s: float, left: int) -> None:
    budget = TokenBudget(ControlOptions(risky_share=0.001, granted_windows=1000))
    budget.risk(100.0)
    assert not budget.may_risk
    budget.earn(served(tokens, busy_s))
    assert budget.may_risk == bool(left)
    budget.earn(served(200, 1.0))
    assert budget.may_risk == bool(left)


def test_an_entry_earns_its_edits_back_by_time() -> None:
    budget = EditBudget(2.0, 30.0)
    for _ in range(2):
        assert budget.has("chat", LEVEL, 0.0)
        budget.spend("chat", LEVEL, 0.0)
    assert not budget.has("chat", LEVEL, 29.0)
    assert budget.has("chat", LEVEL, 30.0)
    assert budget.has("code", LEVEL, 0.0)


def test_a_route_that_changed_gets_its_edits_back() -> None:
    budget = EditBudget(1.0, 30.0)
    budget.spend("chat", LEVEL, 0.0)
    budget.spend("code", LEVEL, 0.0)
    budget.pardon("chat")
    assert budget.has("chat", LEVEL, 0.0)
    assert not budget.has("code", LEVEL, 0.0)
