"""What is known of a behaviour is believed as far as it was tried in it."""

from dataclasses import replace

import numpy as np
import pytest

from collectors.records import LOAD_LEVELS
from policy.adaptive import AtLoad
from policy.regime import COPIED_PASSES, COPIED_TRUST, STALE_TRUST, Regime
from policy.statistics import Floats
from policy.tally import Tally, family_of
from tests.policy.worlds import draft, lookup

DRAFT, LOOKUP = family_of(draft(1)), family_of(lookup(1))


def counts(accepts: float, rejects: float) -> Floats:
    table = np.zeros((2, 16))
    table[:, 0] = accepts, rejects
    return table


def known() -> Regime:
    return Regime(counts={DRAFT: counts(80, 20), LOOKUP: counts(10, 190)}, windows=5)


def test_of_a_copy_only_what_was_tried_is_believed() -> None:
    copy = known().copied({DRAFT})
    assert copy.trust(DRAFT) == 1
    assert copy.trust(LOOKUP) == COPIED_TRUST
    assert copy.counts[LOOKUP].sum() == pytest.approx(COPIED_PASSES)
    assert copy.is_silent_on(LOOKUP)
    assert not copy.is_silent_on(DRAFT)


@pytest.mark.parametrize(
    ("trust", "is_kept", "after"), [(0.2, False, 1.0), (0.7, True, 0.7), (0.99, True, 1.0)]
)
def test_a_try_belies_bears_out_or_leaves_a_doubt(
    trust: float, is_kept: bool, after: float
) -> None:
    copy = known().copied({DRAFT})
    copy.judge(LOOKUP, trust)
    assert (LOOKUP in copy.counts) == is_kept
    assert copy.trust(LOOKUP) == after


def test_what_is_not_tried_for_long_is_doubted_and_a_try_starts_the_time_anew() -> None:
    regime = known()
    for _ in range(10):
        regime.pass_over({DRAFT}, most=10)
    assert regime.trust(LOOKUP) == 1
    regime.add(LOOKUP, Tally(), 1.0)
    for _ in range(11):
        regime.pass_over({DRAFT}, most=10)
    assert regime.trust(LOOKUP) == STALE_TRUST
    assert regime.trust(DRAFT) == 1
    assert regime.counts[LOOKUP].sum() == pytest.approx(COPIED_PASSES)


def test_what_an_adaptive_mode_yielded_is_not_doubted_with_the_fixed_lengths() -> None:
    copy = known().copied({LOOKUP})
    adaptive = AtLoad(family=family_of(replace(draft(7), is_adaptive=True)), load=LOAD_LEVELS[2])
    assert copy.trust(adaptive) == COPIED_TRUST
    copy.add_yield(adaptive, Tally(passes=10), 1.0)
    assert copy.trust(adaptive) == 1
