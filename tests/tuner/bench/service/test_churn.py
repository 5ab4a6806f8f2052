import pytest

from collectors.records import OFF, Setting
from policy.types import Advice
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import change, said
from tuner.bench.service.churn import Churn, reversals_in, share


@pytest.mark.parametrize(
    ("course", "count"),
    [
        ((OFF, OFF, OFF), 0),
        ((DRAFT_3, LOOKUP_5), 0),
        ((DRAFT_3, OFF), 1),
        ((OFF, DRAFT_3, OFF), 2),
        ((DRAFT_3, LOOKUP_5, DRAFT_3), 1),
        ((DRAFT_3,), 0),
    ],
)
def test_going_back_on_the_proposal_before_is_a_reversal(
    course: tuple[Setting, ...], count: int
) -> None:
    assert reversals_in(course) == count


def test_reversals_are_counted_by_route_and_load() -> None:
    churn = Churn(hours=0.5, num_routes=2, num_new=3)
    churn.note([said("chat", change()), said("story", change())])
    churn.note(
        [
            said("chat", change(OFF), advice=Advice.NO_CHANGE),
            said("story", change()),
        ]
    )

    assert (churn.num_reversals, churn.num_answers) == (1, 2)
    assert churn.per_hour == 3.0


def test_no_answers_have_no_share_of_reversals() -> None:
    assert share(0, 0) is None
    assert share(1, 4) == 0.25
