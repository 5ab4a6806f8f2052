"""Several recommendations approved as one on a real engine: all of them, or none."""

from __future__ import annotations

import pytest

from collectors.records import Plan, Setting
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.said import LOAD_1, change, plan, said
from tests.tuner.workflows.test_review import add, live, outcomes, state
from tuner.errors import BadRequest, Outdated, PlanRefused, StateChanged
from tuner.store import plans, recommendations
from tuner.store.plans import Outcome
from tuner.store.recommendations import State
from tuner.workflows.review import approve, reject, roll_back
from tuner.workflows.site import Site
from tuner.workflows.together import approve_together

BOTH = plan(("chat", LOAD_1, DRAFT_3), ("story", LOAD_1, LOOKUP_5))
UNKNOWN = Setting(method=DRAFT_3.method, k=3, drafter="nobody")


@pytest.fixture
def pair(site: Site) -> tuple[int, int]:
    return add(site, said("chat")), add(site, said("story", change(LOOKUP_5)))


def test_a_set_comes_into_force_in_one_change_of_the_plan(site: Site, pair: tuple[int, int]):
    version = live(site).version

    done = approve_together(site, pair, who="ann", why="both pay")

    assert [one.state for one in done] == [State.PROMOTED, State.PROMOTED]
    assert (live(site).digest, live(site).version) == (BOTH.digest, version + 1)
    with site.store.reading() as session:
        newest = plans.latest_applied(session, site.engine)
        why = recommendations.transitions(session, pair[0])[1].why
    assert newest is not None
    assert newest.plan.digest == BOTH.digest
    assert why == "both pay (#1, #2 together)"


def test_one_of_a_set_is_rolled_back_alone(site: Site, pair: tuple[int, int]):
    approve_together(site, pair, who="ann")

    roll_back(site, pair[0], who="ann", why="chat slid")

    assert live(site).digest == plan(("story", LOAD_1, LOOKUP_5)).digest
    assert state(site, pair[1]) is State.PROMOTED


def test_where_one_cannot_be_approved_none_is(site: Site, pair: tuple[int, int]):
    reject(site, pair[1], who="bob", why="no")

    with pytest.raises(StateChanged, match="recommendation 2 is rejected"):
        approve_together(site, pair, who="ann")

    assert live(site).digest == Plan().digest
    assert state(site, pair[0]) is State.PENDING
    assert outcomes(site) == []


def test_where_the_engine_refuses_all_are_put_back(site: Site):
    numbers = add(site, said("chat")), add(site, said("story", change(UNKNOWN)))

    with pytest.raises(PlanRefused):
        approve_together(site, numbers, who="ann")

    assert live(site).digest == Plan().digest
    assert [state(site, number) for number in numbers] == [State.PENDING, State.PENDING]
    assert outcomes(site) == [Outcome.FAILED, Outcome.FAILED]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((), "got none"),
        ((1,), "two or more different recommendations, got 1"),
        ((1, 1), "got 1 1"),
    ],
)
def test_what_is_no_set_is_refused(
    site: Site, pair: tuple[int, int], numbers: tuple[int, ...], message: str
):
    with pytest.raises(BadRequest, match=message):
        approve_together(site, numbers, who="ann")


def test_a_superseded_one_names_its_successor(site: Site, pair: tuple[int, int]):
    newer = add(site, said("chat", change(LOOKUP_5)))

    with pytest.raises(Outdated, match="recommendation 1 is superseded by #3, open it"):
        approve_together(site, pair, who="ann")
    with pytest.raises(Outdated, match="superseded by #3"):
        approve(site, pair[0], who="ann")

    assert approve(site, newer, who="ann").state is State.PROMOTED


def test_figures_that_moved_since_the_page_was_made_are_shown_first(site: Site):
    number = add(site, said("chat", change(gain=0.4)))
    add(site, said("chat", change(gain=0.45)))

    with pytest.raises(Outdated, match="updated from revision 1 to 2 since this page was made"):
        approve(site, number, who="ann", revision=1)

    assert live(site).digest == Plan().digest
    assert approve(site, number, who="ann", revision=2).state is State.PROMOTED


def test_figures_that_read_the_same_do_not_stop_an_approval(site: Site):
    number = add(site, said("chat", change(gain=0.4)))
    add(site, said("chat", change(gain=0.4001)))

    assert approve(site, number, who="ann", revision=1).state is State.PROMOTED
