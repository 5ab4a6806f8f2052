from __future__ import annotations

from dataclasses import replace

from dashboards.access import Role
from tests.tuner.api.console_seeding import ENGINE, OFF, PLAN, pinned_config, utc_now
from tests.tuner.api.served import Served
from tuner.store import plans


def test_the_trail_tells_decisions_plans_and_refusals_once_each(served: Served) -> None:
    failed = plans.PlanChange(
        engine=ENGINE,
        recommendation=2,
        at=utc_now(),
        who="Ada",
        why="try",
        outcome=plans.Outcome.FAILED,
        error="the engine refused k=16",
        plan=replace(PLAN, entries=()),
        before=PLAN,
    )
    with served.store.writing() as session:
        plans.add(session, failed)
    with served.api(Role.OPERATOR) as client:
        client.post("/api/v1/recommendations/2/reject", json={"reason": "not now"})
        client.post("/api/v1/recommendations/2/approve", json={})
        lines = client.get("/api/v1/audit").json()["audit"]
    told = [(line["what"], line["who"], line["outcome"]) for line in lines[:3]]
    assert told == [
        ("recommendation.approve", "operator token", "refused"),
        ("recommendation.rejected", "operator token", "done"),
        ("plan.apply", "Ada", "failed"),
    ]
    assert lines[2]["detail"] == "the engine refused k=16"
    assert [line["at"] for line in lines] == sorted((line["at"] for line in lines), reverse=True)
    assert "recommendation.pending" not in {line["what"] for line in lines}


def test_an_auditor_reads_the_exact_configuration_that_was_evaluated(shared: Served) -> None:
    config = pinned_config(OFF)
    with shared.browser(Role.VIEWER) as client:
        page = client.get(f"/pinned/{config.digest}").text
        assert config.weights_hash in page
        assert f"/pinned/{config.digest}" in client.get("/divergences/1").text
        assert f"/pinned/{config.digest}" in client.get("/replays/1").text
        assert client.get("/pinned/unknown").status_code == 404
    with shared.api(Role.VIEWER) as client:
        body = client.get(f"/api/v1/pinned/{config.digest}").json()
    assert body == {"digest": config.digest, "config": config.to_dict()}
