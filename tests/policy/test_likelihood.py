"""Doubted counts count in part, and a window says how far they are to be believed."""

import numpy as np
import pytest

from policy.likelihood import log_fits, trust_after
from policy.regime import COPIED_TRUST, Regime
from policy.tally import Tally, family_of, tally_of
from tests.policy.worlds import draft, observation

FAMILY = family_of(draft(1))
GUESS = {FAMILY: np.full(1, 0.5)}


def tally(accepts: int, passes: int) -> Tally:
    return tally_of(observation(draft(1), [accepts / passes], passes=passes))


def regime(trust: float = 1.0) -> Regime:
    counts = np.zeros((2, 16))
    counts[:, 0] = 18.0, 2.0
    return Regime(counts={FAMILY: counts}, trusts={FAMILY: trust} if trust < 1 else {})


def test_doubted_counts_are_as_likely_as_what_is_known_and_any_level_together() -> None:
    for accepts in (2, 18):
        scaled = {FAMILY: (tally(accepts, 20), 1.0)}
        known, doubted, unseen = log_fits([regime(), regime(0.5), Regime()], scaled, GUESS)
        assert doubted == pytest.approx(np.logaddexp(known, unseen) + np.log(0.5))


def test_a_window_like_the_counts_makes_them_sure_and_another_belies_them() -> None:
    assert trust_after(regime(COPIED_TRUST), FAMILY, tally(54, 60), 1.0, GUESS[FAMILY]) > 0.8
    assert trust_after(regime(COPIED_TRUST), FAMILY, tally(6, 60), 1.0, GUESS[FAMILY]) < 1e-6


def test_a_single_pass_says_little() -> None:
    after = trust_after(regime(COPIED_TRUST), FAMILY, tally(1, 1), 1.0, GUESS[FAMILY])
    assert COPIED_TRUST < after < 0.75


@pytest.mark.parametrize("passes", [1, 10**9])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_any_window_leaves_a_chance(passes: int, share: float) -> None:
    after = trust_after(regime(0.9), FAMILY, tally(int(share * passes), passes), 1.0, GUESS[FAMILY])
    assert 0 <= after <= 1
