"""What is in force is measured, kept, and raises an alarm where a prediction was missed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from policy.drift_alarms import AlarmKind
from policy.outcome import Basis
from tests.contracts.test_realised import DRAFTING, ENGINE, NOW, PLAIN, close, note, window
from tests.fixtures.said import said
from tests.tuner.workflows.test_review import add
from tuner.store import drift, outcomes, recommendations
from tuner.store.recommendations import State
from tuner.workflows.outcomes import note_outcomes
from tuner.workflows.site import Site
from tuner.workflows.standing import standing_of


@pytest.fixture
def promoted(site: Site) -> Site:
    """A site with a recommendation in force that promised 1.40 times the engine's total."""
    number = add(site, said())
    with site.store.writing() as session:
        for state in (State.APPROVED, State.STAGED, State.PROMOTED):
            recommendations.move(session, number, state, who="ann", at=NOW, why="it pays")
    note(site.store, (-99.0, PLAIN), (0.0, DRAFTING))
    close(site.store, *(window(n, 40.0) for n in range(-14, 1)))
    return site


def alarms(site: Site) -> list[str]:
    with site.store.reading() as session:
        found = drift.alarms(session, site.engine, open_only=True)
    return [one.alarm.saw for one in found if one.alarm.kind is AlarmKind.PREDICTION_MISSED]


def test_a_prediction_that_held_is_kept_and_raises_nothing(promoted: Site):
    close(promoted.store, *(window(n, 56.0) for n in range(1, 13)))

    assert note_outcomes(promoted) == 0

    assert alarms(promoted) == []
    with promoted.store.reading() as session:
        ((kept,),) = outcomes.of(session, [1]).values()
    assert (kept.basis, kept.is_missed) == (Basis.BEFORE_AND_AFTER, False)
    assert kept.realised.mean == pytest.approx(1.4)


def test_a_missed_prediction_raises_one_alarm_that_names_both_figures(promoted: Site):
    close(promoted.store, *(window(n, 41.0) for n in range(1, 13)))

    assert (note_outcomes(promoted), note_outcomes(promoted)) == (1, 1)

    (saw,) = alarms(promoted)
    assert saw.startswith("Recommendation 1 on chat: engine total 1.02x (")
    assert saw.endswith("at load 1 by before and after, predicted 1.40x (1.30 to 1.50).")
    with promoted.store.reading() as session:
        standing = standing_of(session, recommendations.one(session, 1))
        assert len(outcomes.record(session, ENGINE)) == 1
    assert [one.is_missed for one in standing.outcomes] == [True]


def test_the_alarm_is_over_once_the_recommendation_is_rolled_back(promoted: Site):
    close(promoted.store, *(window(n, 41.0) for n in range(1, 13)))
    note_outcomes(promoted)
    with promoted.store.writing() as session:
        at = datetime.now(UTC)
        recommendations.move(session, 1, State.ROLLED_BACK, who="ann", at=at, why="missed")

    assert note_outcomes(promoted) == 0

    assert alarms(promoted) == []
    with promoted.store.reading() as session:
        assert len(outcomes.record(session, ENGINE)) == 1


def test_too_few_windows_leave_no_outcome(promoted: Site):
    close(promoted.store, window(1, 41.0))

    assert note_outcomes(promoted) == 0
    with promoted.store.reading() as session:
        assert outcomes.of(session, [1]) == {}
