"""The gate on the page of a recommendation, and Run now."""

from __future__ import annotations

from dashboards.access import Role
from tests.tuner.api.served import Served
from tests.tuner.api.test_pages import csrf_of
from tuner.store import audit

PAGE = "/recommendations/2"


def test_the_page_says_why_the_gate_is_closed_and_where_speed_was_not_replayed(served: Served):
    with served.browser(Role.VIEWER) as client:
        page = client.get(PAGE).text

    assert "did not pass: too few pairs" in page
    assert "speed at load 5-8 was not replayed" in page
    assert "Run now" not in page


def test_an_operator_has_the_evaluation_run_and_sees_how_far_it_is(served: Served):
    with served.browser(Role.OPERATOR) as client:
        form = {"csrf": csrf_of(client.get(PAGE).text)}
        answer = client.post("/proof/gate/2", data=form)
        assert answer.status_code == 303
        assert answer.headers["location"] == f"{PAGE}#gate"
        page = client.get(PAGE).text
        assert client.post("/proof/gate/2", data=form).status_code == 303

    assert "12 of 20 pairs" in page
    assert "disabled>Run now" in page
    with served.store.reading() as session:
        again, first = audit.listed(session)[:2]
    assert (first.action, first.target, first.who) == (
        "gate.run",
        "recommendation 2",
        "operator token",
    )
    assert (first.detail, again.detail) == ("1 evaluations", "under way already")


def test_a_viewer_and_a_foreign_form_run_nothing(served: Served):
    with served.browser(Role.VIEWER) as client:
        csrf = csrf_of(client.get("/").text)
        assert client.post("/proof/gate/2", data={"csrf": csrf}).status_code == 403
    with served.browser(Role.OPERATOR) as client:
        assert client.post("/proof/gate/2", data={"csrf": "x"}).status_code == 403


def test_the_api_runs_it_for_an_operator_and_gives_the_evidence(served: Served):
    with served.api(Role.VIEWER) as client:
        assert client.post("/api/v1/recommendations/2/gate").status_code == 403
    with served.api(Role.OPERATOR) as client:
        answer = client.post("/api/v1/recommendations/2/gate")

    assert answer.status_code == 200
    assert answer.json()["gate"][0]["progress"] == "12 of 20 pairs"
