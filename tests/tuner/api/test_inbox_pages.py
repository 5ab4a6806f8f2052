"""The inbox on the pages: outdated decisions, sets, worst route, missed predictions, snoozes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import update

from dashboards.access import Role
from policy.outcome import Basis, Outcome
from policy.types import Interval, JointEffect, Recommendation
from tests.tuner.api.console_seeding import ENGINE, PLAN, recommendation, utc_now
from tests.tuner.api.served import Served
from tests.tuner.api.test_pages import csrf_of
from tuner.store import Store, audit, outcomes, recommendations
from tuner.store.recommendations import State
from tuner.store.schema import StepRow


def test_approving_an_outdated_page_shows_both_sides_and_the_successor(served: Served) -> None:
    newer = recommendation("rag_answer", 0.9)
    with served.browser(Role.OPERATOR) as client:
        before = client.get("/recommendations/2").text
        assert 'name="revision" value="1"' in before
        with served.store.writing() as session:
            successor = recommendations.add(
                session, ENGINE, newer, PLAN, who="recommend", at=utc_now()
            )
        assert successor is not None
        form = {"csrf": csrf_of(before), "reason": "", "revision": "1"}
        answer = client.post("/recommendations/2/approve", data=form)
    assert answer.status_code == 409
    assert f"recommendation 2 is superseded by #{successor.id}, open it" in answer.text
    assert f'<a href="/recommendations/{successor.id}">#{successor.id}</a>, open it' in answer.text
    shown, now = ("+21.0\u00a0%", "+45.0\u00a0%")
    assert shown in answer.text
    assert now in answer.text


def test_approving_figures_that_moved_in_place_shows_them_and_then_goes_through(
    served: Served,
) -> None:
    with served.store.writing() as session:
        moved = recommendation("rag_answer", 0.685)
        row = recommendations.add(session, ENGINE, moved, PLAN, who="recommend", at=utc_now())
    assert row is not None
    assert (row.id, row.revision) == (2, 2)
    with served.browser(Role.OPERATOR) as client:
        csrf = csrf_of(client.get("/recommendations/2").text)
        old = client.post("/recommendations/2/approve", data={"csrf": csrf, "revision": "1"})
        assert old.status_code == 409
        assert "The figures moved since this page was made." in old.text
        assert 'name="revision" value="2"' in old.text
        new = client.post("/recommendations/2/approve", data={"csrf": csrf, "revision": "2"})
    assert new.status_code == 303


def test_the_overview_opens_with_the_worst_route_and_why(shared: Served) -> None:
    with shared.browser(Role.VIEWER) as client:
        page = client.get("/").text
    line = re.search(r'id="worst">(.*?)</p>', page)
    assert line is not None
    assert "Worst route" in line[1]
    assert "json_extract" in line[1]
    assert "it runs off at load 1, where draft_model k=3 is predicted to give" in line[1]
    assert page.index('id="worst"') < page.index("Routes by load level")


def test_the_overview_says_when_the_last_traffic_was(
    serve: Callable[..., Served], full_store: Store
) -> None:
    with full_store.writing() as session:
        session.execute(update(StepRow).values(at_s=StepRow.at_s - 240))
    with serve(full_store).browser(Role.VIEWER) as client:
        page = client.get("/").text
    assert re.search("last traffic [4-9]\u00a0min ago|last traffic \\d\\d\u00a0min ago", page)


def missed(store: Store) -> None:
    """Note that the recommendation in force brings less than off."""
    with store.writing() as session:
        change = recommendations.one(session, 1).said.changes[0]
        found = Outcome(
            load=change.load,
            setting=change.proposed,
            basis=Basis.PAIRED,
            predicted=change.over_off,
            realised=Interval(low=0.91, mean=0.96, high=1.01),
        )
        outcomes.note(session, 1, [found], utc_now())


def test_a_missed_prediction_is_told_on_every_page_with_the_way_back(served: Served) -> None:
    missed(served.store)
    with served.browser(Role.OPERATOR) as client:
        overview = client.get("/").text
        pages = [client.get(one).text for one in ("/recommendations/1", "/routes/code_edit")]
    with served.api(Role.VIEWER) as client:
        metrics = client.get("/metrics").text
    assert "prediction missed" in overview
    assert "Prediction missed: over off 0.96x (0.91 to 1.01) at load 1 by paired steps" in pages[0]
    assert "Roll back" in pages[0]
    assert "prediction missed" in pages[1]
    place = '{load="1",route="code_edit"}'
    assert f"spectuner_route_speed_over_off_realised_ratio{place} 0.96" in metrics
    assert f"spectuner_route_speed_over_off_predicted_ratio{place} 1.29" in metrics
    assert 'spectuner_predictions_missed{route="code_edit"} 1.0' in metrics


def test_a_refused_change_is_told_as_snoozed_with_what_brings_it_back(shared: Served) -> None:
    with shared.browser(Role.VIEWER) as client:
        page = client.get("/routes/chat").text
    assert "is snoozed: #4 was rejected by Ada because looks right on the replay" in page
    assert "it comes back when its engine total lies wholly above" in page


def joint(route: str, alpha: float) -> Recommendation:
    said = recommendation(route, alpha)
    changes = tuple(
        replace(
            one,
            needs_set=True,
            joint=JointEffect(
                routes=("json_extract", "rag_answer"),
                route_speed=one.route_speed,
                engine_total=one.engine_total,
            ),
        )
        for one in said.changes
    )
    return replace(said, changes=changes)


def test_a_set_is_offered_with_one_button_and_approved_as_one(served: Served) -> None:
    with served.store.writing() as session:
        for route, alpha in (("rag_answer", 0.9), ("json_extract", 0.95)):
            said = joint(route, alpha)
            recommendations.add(session, ENGINE, said, PLAN, who="recommend", at=utc_now())
    with served.browser(Role.OPERATOR) as client:
        page = client.get("/recommendations/6").text
        assert "It pays only if the other routes' changes are approved too" in page.replace(
            "&#39;", "'"
        )
        assert "Approve the set" in page
        numbers = re.findall(r'name="numbers" value="(\d+)"', page)
        form = {"csrf": csrf_of(page), "reason": "", "numbers": numbers}
        answer = client.post("/recommendations/6/approve-together", data=form)
    assert answer.status_code == 303
    assert sorted(numbers) == ["6", "7"]
    with served.store.reading() as session:
        states = [recommendations.one(session, number).state for number in (6, 7)]
        entry = audit.listed(session)[0]
    assert states == [State.PROMOTED, State.PROMOTED]
    assert (entry.action, entry.target) == (
        "recommendation.approve_together",
        f"recommendations {', '.join(numbers)}",
    )
