from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dashboards.access import Role
from tests.tuner.api.served import Served
from tuner.metrics import DECLARED
from tuner.store import recommendations
from tuner.store.recommendations import State


def error_of(answer: object) -> dict[str, object]:
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert "\n" not in body["error"]["message"]
    return body["error"]


def test_the_overview_gives_cells_with_stable_names(shared: Served) -> None:
    with shared.api(Role.VIEWER) as client:
        body = client.get("/api/v1/overview").json()
    assert set(body) == {
        "at", "period_s", "start", "end", "engines", "cells", "loads", "waiting",
        "alarms", "last_traffic_at", "worst", "in_force", "autopilot",
    }  # fmt: skip
    cell = next(c for c in body["cells"] if c["route"] == "code_edit" and c["load"] == "1")
    assert cell["acceptance_rate"] == pytest.approx(cell["accepted"] / cell["drafted"])
    assert cell["live"]["label"] == "draft_model k=3"
    assert cell["proposal"]["state"] == "promoted"
    assert cell["ttft_p95_is_above"] is False
    assert body["engines"][0]["lost_steps"] == 0


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("routes/chat", "curves"),
        ("recommendations", "recommendations"),
        ("recommendations/2", "said"),
        ("replays", "replays"),
        ("replays/1", "pairs"),
        ("divergences", "divergences"),
        ("divergences/1", "splits"),
        ("jobs", "timetable"),
        ("audit", "audit"),
        ("alarms", "alarms"),
    ],
)
def test_every_reading_route_answers_a_viewer_with_strict_json(
    shared: Served, path: str, key: str
) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    with shared.api(Role.VIEWER) as client:
        answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 200
    assert json.loads(answer.text, parse_constant=refuse)[key]


def test_an_operator_decides_and_gets_the_recommendation_back(served: Served) -> None:
    with served.api(Role.OPERATOR) as client:
        body = client.post("/api/v1/recommendations/2/hold", json={"reason": "wait"}).json()
        assert body["line"]["state"] == "held"
        assert body["transitions"][-1]["who"] == "operator token"
        assert body["actions"] == ["approve", "reject"]
        assert client.post("/api/v1/recommendations/2/approve").json()["line"]["state"] == (
            "promoted"
        )
    with served.store.reading() as session:
        assert recommendations.one(session, 2).state is State.PROMOTED


def test_a_recommendation_in_force_tells_what_it_brought(shared: Served) -> None:
    with shared.api(Role.VIEWER) as client:
        brought = client.get("/api/v1/recommendations/1").json()["realised"]
        pending = client.get("/api/v1/recommendations/2").json()
    level = brought["levels"][1]
    assert set(level) == {
        "load", "former", "setting", "predicted", "before", "realised", "over_predicted",
        "over_before", "others",
    }  # fmt: skip
    assert (level["load"], level["predicted"]["mean"]) == ("2", 80.0)
    assert (level["former"]["label"], level["setting"]["label"]) == ("off", "draft_model k=3")
    now, then = level["realised"], level["before"]
    assert (now["windows"], then["windows"]) == (29, 11)
    assert level["over_predicted"] == pytest.approx(now["tokens_per_s"]["mean"] / 80.0 - 1)
    assert now["row_shares"] == {"chat": 0.5, "code_edit": 0.5}
    assert pending["realised"] is None


@pytest.mark.parametrize("path", ["overview", "recommendations", "jobs", "tokens"])
def test_the_api_takes_a_bearer_token_and_nothing_else(shared: Served, path: str) -> None:
    with shared.browser(Role.ADMIN) as client:
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert error_of(answer)["code"] == "sign_in_needed"
        basic = client.get(f"/api/v1/{path}", headers={"authorization": "Basic eDp5"})
        assert basic.status_code == 401
        query = client.get(f"/api/v1/{path}", params={"token": shared.tokens[Role.ADMIN]})
        assert query.status_code == 401


@pytest.mark.parametrize(
    ("role", "method", "path"),
    [
        (Role.VIEWER, "POST", "recommendations/2/approve"),
        (Role.VIEWER, "GET", "tokens"),
        (Role.OPERATOR, "POST", "tokens"),
        (Role.OPERATOR, "DELETE", "tokens/1"),
    ],
)
def test_the_api_refuses_a_role_that_is_too_low(
    shared: Served, role: Role, method: str, path: str
) -> None:
    with shared.api(role) as client:
        answer = client.request(method, f"/api/v1/{path}", json={"name": "x", "role": "admin"})
    assert answer.status_code == 403
    assert f"has role {role}" in str(error_of(answer)["message"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "recommendations/abc", None, 404),
        ("GET", "recommendations/999", None, 404),
        ("GET", "nope", None, 404),
        ("GET", "overview?period=x", None, 422),
        ("GET", "overview?period=1", None, 422),
        ("PUT", "overview", None, 405),
        ("POST", "recommendations/2/hold", "{not json", 422),
        ("POST", "recommendations/2/hold", "[]", 422),
        ("POST", "recommendations/2/hold", '{"reason": 5}', 422),
        ("POST", "recommendations/2/hold", '{"raison": "x"}', 422),
        ("POST", "recommendations/2/hold", '{"reason": ""}', 422),
        ("POST", "recommendations/2/hold", '{"reason": "\\ud800"}', 422),
        ("POST", "recommendations/2/approve", '{"reason": "a\\u0000b"}', 422),
        ("POST", "recommendations/2/roll_back", '{"reason": "x"}', 409),
        ("POST", "tokens", '{"name": "x", "role": "root"}', 422),
        ("POST", "tokens", '{"name": "x"}', 422),
        ("DELETE", "tokens/999", None, 404),
    ],
)
def test_a_bad_request_gets_one_clear_line(
    shared: Served, method: str, path: str, body: str | None, status: int
) -> None:
    with shared.api(Role.ADMIN) as client:
        headers = {"content-type": "application/json"}
        answer = client.request(method, f"/api/v1/{path}", content=body, headers=headers)
    assert answer.status_code == status
    assert error_of(answer)["message"]


def test_an_admin_makes_and_revokes_tokens_over_the_api(served: Served) -> None:
    with served.api(Role.ADMIN) as client:
        made = client.post("/api/v1/tokens", json={"name": "ci", "role": "viewer"})
        assert made.status_code == 201
        token = made.json()["token"]
        listed = client.get("/api/v1/tokens")
        assert token not in listed.text
        number = next(t["id"] for t in listed.json()["tokens"] if t["name"] == "ci")
        bearer = {"authorization": f"Bearer {token}"}
        assert client.get("/api/v1/jobs", headers=bearer).status_code == 200
        client.delete(f"/api/v1/tokens/{number}")
        assert client.get("/api/v1/jobs", headers=bearer).status_code == 401


def test_the_scrape_declares_every_metric_and_needs_a_token(shared: Served) -> None:
    with shared.api(Role.VIEWER) as client:
        text = client.get("/metrics").text
        assert client.get("/metrics", headers={"authorization": ""}).status_code == 401
    families = {family.name: family for family in text_string_to_metric_families(text)}
    declared = {name.removesuffix("_total") for name in DECLARED}
    assert declared <= set(families)
    assert {name for name in families if not name.startswith("spectuner_")} == set()
    assert families["spectuner_recommendations_pending"].samples[0].value == 2
    assert families["spectuner_jobs_failing"].samples[0].value == 1
    assert families["spectuner_engine_stale"].samples[0].value == 0
    for sample in families["spectuner_acceptance_ratio"].samples:
        assert set(sample.labels) == {"route", "load"}
        assert 0 <= sample.value <= 1


def test_health_needs_no_token_and_tells_nothing_but_health(shared: Served) -> None:
    with shared.browser() as client:
        assert set(client.get("/health").json()) == {"status", "version"}


def test_the_schema_is_served_and_the_scripted_docs_are_not(shared: Served) -> None:
    with shared.browser() as client:
        schema = client.get("/api/v1/openapi.json").json()
        assert "/api/v1/recommendations/{number}/{act}" in schema["paths"]
        assert "/tokens" not in schema["paths"]
        assert client.get("/docs").status_code == client.get("/redoc").status_code == 404


def test_the_api_approves_a_set_and_tells_how_each_stands(served: Served) -> None:
    with served.api(Role.OPERATOR) as client:
        body = {"numbers": [2, 3], "reason": "both pay"}
        done = client.post("/api/v1/recommendations/approve-together", json=body)
        old = {"reason": "", "revision": 1}
        again = client.post("/api/v1/recommendations/2/approve", json=old)
    assert done.status_code == 200
    views = done.json()["recommendations"]
    assert [one["line"]["state"] for one in views] == ["promoted", "promoted"]
    assert {"revision", "amount", "best", "worst", "together", "snoozed"} <= set(views[0])
    assert again.status_code == 409
