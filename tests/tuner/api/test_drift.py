"""Drift alarms on the console, in the JSON API and in the metrics."""

from __future__ import annotations

from dashboards.access import Role
from tests.tuner.api.served import Served
from tests.tuner.api.test_pages import csrf_of
from tuner.store import audit, drift

CHAT, STORY, FAULT = 1, 2, 3


def test_open_alarms_show_on_the_overview_and_on_their_route_only(shared: Served) -> None:
    with shared.browser(Role.VIEWER) as client:
        overview = client.get("/").text
        chat, story = client.get("/routes/chat").text, client.get("/routes/story").text

    assert "fell from 3.07 to 2.80" in overview
    assert "fell from 3.07 to 2.80" in chat
    assert "fell from 3.07 to 2.80" not in story
    assert "Nothing is recommended for story meanwhile" in story
    assert "counter fault" not in overview.lower()


def test_the_page_says_what_to_do_and_offers_viewers_no_button(shared: Served) -> None:
    with shared.browser(Role.VIEWER) as client:
        page = client.get("/drift").text

    assert "Restart the engine." in page
    assert "/acknowledge" not in page


def test_an_operator_acknowledges_an_alarm_with_a_reason(served: Served) -> None:
    with served.browser(Role.OPERATOR) as client:
        form = {"csrf": csrf_of(client.get("/drift").text), "reason": ""}
        assert client.post(f"/drift/{STORY}/acknowledge", data=form).status_code == 422
        answer = client.post(f"/drift/{STORY}/acknowledge", data={**form, "reason": "copied text"})

        page = client.get(answer.headers["location"]).text

    assert answer.status_code == 303
    assert "acknowledged by" in page
    with served.store.reading() as session:
        assert [one.id for one in drift.alarms(session, "bundled", open_only=True)] == [CHAT]
        noted = audit.listed(session)[0]
    assert (noted.action, noted.detail) == ("drift.acknowledge", "copied text")


def test_acknowledging_over_the_api_needs_an_operator(served: Served) -> None:
    path, body = f"/api/v1/alarms/{CHAT}/acknowledge", {"reason": "seen"}
    with served.api(Role.VIEWER) as client:
        assert client.post(path, json=body).status_code == 403
    with served.api(Role.OPERATOR) as client:
        answer = client.post(path, json=body).json()
        assert client.post("/api/v1/alarms/99/acknowledge", json=body).status_code == 404

    assert (answer["kind"], answer["is_open"], answer["acknowledged_why"]) == (
        "decay",
        False,
        "seen",
    )


def test_the_scrape_counts_open_alarms_by_kind(shared: Served) -> None:
    with shared.api(Role.VIEWER) as client:
        text = client.get("/metrics").text

    assert 'spectuner_drift_alarms{engine="bundled",kind="decay",route="chat"} 1.0' in text
    assert 'spectuner_drift_alarms{engine="bundled",kind="loop",route="story"} 1.0' in text
    assert 'kind="counter_fault"' not in text
