"""What a recommendation says of the change itself, and of a pool without speculation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectors.records import OFF, Method
from policy.options import RecommendOptions
from policy.timings import CatchUp
from policy.types import Window
from tests.policy.test_recommend import asked, only, priced
from tests.policy.worlds import END_S, draft

POOL = RecommendOptions(clean_pool=True, off_tax_ratio=0.06)


def calibrated(seconds_per_token: float) -> Window:
    """A calibration that timed how a drafter reads contexts, and nothing else."""
    read = CatchUp(
        method=Method.DRAFT_MODEL,
        context_tokens=1000,
        rounds=4,
        total_s=1000 * seconds_per_token,
    )
    return Window(start_s=END_S - 60, end_s=END_S - 60, catch_ups=(read,), is_calibration=True)


def test_a_change_says_what_it_loses_and_when_that_is_earned_back() -> None:
    (found,) = asked([calibrated(1e-3), priced(0.2)], OFF)
    change = only([found])
    assert change.proposed == draft(2)
    assert change.lost_s == pytest.approx(0.512)
    sentence = next(reason for reason in found.reasons if "itself loses" in reason)
    assert "loses about 0.51 s of the engine's time, earned back in 0.8 s" in sentence


def test_a_change_that_loses_more_than_it_earns_while_it_holds_is_not_recommended() -> None:
    """Half a million seconds of reading stand against half an hour at one and a half."""
    assert only(asked([calibrated(1e3), priced(0.2)], OFF)).proposed == OFF


def test_where_nothing_is_lost_nothing_is_said_of_it() -> None:
    (found,) = asked([priced(0.2)], OFF)
    assert only([found]).lost_s == 0
    assert not any("itself loses" in reason for reason in found.reasons)


def test_a_route_that_runs_off_is_advised_to_move_to_the_pool() -> None:
    (found,) = asked([priced(1.0)], OFF, options=POOL)
    (advice,) = found.pools
    assert advice.leaves == ("chat",)
    assert advice.settings == {}
    assert advice.gain.mean == pytest.approx(0.06)
    assert advice.reason in found.reasons
    assert only([found]).proposed == OFF


def test_no_pool_is_spoken_of_where_there_is_none_or_drafts_pay() -> None:
    for cost, options in ((1.0, replace(POOL, clean_pool=False)), (0.1, POOL)):
        (found,) = asked([priced(cost)], OFF, options=options)
        assert found.pools == ()
        assert not any("pool" in reason for reason in found.reasons)


def test_a_pool_with_an_unknown_tax_is_not_evaluable() -> None:
    (found,) = asked([priced(1.0)], OFF, options=replace(POOL, off_tax_ratio=None))
    assert found.pools == ()
    assert any("not evaluable: set off_tax_ratio" in reason for reason in found.reasons)
