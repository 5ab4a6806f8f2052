from __future__ import annotations

from dataclasses import replace

import pytest

from policy.types import Advice
from tests.tuner.api.console_seeding import ENGINE, PLAN, recommendation, utc_now
from tuner.api.traffic import telling
from tuner.store.recommendations import State, StoredRecommendation


def stored(number: int, state: State, advice: Advice = Advice.CHANGE) -> StoredRecommendation:
    said = recommendation("chat", 0.7, advice)
    if advice is not Advice.CHANGE:
        said = replace(said, changes=())
    return StoredRecommendation(
        id=number,
        engine=ENGINE,
        state=state,
        created_at=utc_now(),
        refreshed_at=utc_now(),
        plan_digest=PLAN.digest,
        said=said,
    )


QUIET = stored(9, State.PENDING, Advice.NO_CHANGE)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ((), None),
        ((QUIET,), 9),
        ((QUIET, stored(8, State.PROMOTED)), 8),
        ((stored(10, State.PENDING), stored(8, State.PROMOTED)), 10),
        ((QUIET, stored(8, State.HELD), stored(7, State.PROMOTED)), 8),
        ((stored(8, State.REJECTED),), 8),
        ((stored(8, State.SUPERSEDED), stored(7, State.EXPIRED)), None),
    ],
)
def test_the_overview_tells_of_the_change_that_waits_or_is_in_force(
    said: tuple[StoredRecommendation, ...], told: int | None
) -> None:
    found = telling(said)
    assert (found.id if found else None) == told
