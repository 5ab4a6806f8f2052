from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from collectors.records import LOAD_LEVELS, OFF
from dashboards.access import Role
from policy.types import Advice
from tests.tuner.api.console_seeding import ENGINE, PLAN, recommendation, utc_now
from tests.tuner.api.served import Served
from tuner.store import Store, audit, facts, recommendations
from tuner.store.recommendations import State

PAGES = (
    "/",
    "/?period=300",
    "/routes/code_edit",
    "/recommendations",
    "/recommendations?state=pending",
    "/recommendations/2",
    "/drift",
    "/proof",
    "/replays/1",
    "/divergences/1",
    "/jobs",
    "/jobs?job=ingest",
    "/audit",
    "/tokens",
)
HOSTILE = "<script>alert('x')</script>\"'&{{7*7}}"


def csrf_of(page: str) -> str:
    return page.split('name="csrf" value="')[1].split('"')[0]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_renders_with_a_full_store(shared: Served, path: str) -> None:
    with shared.browser(Role.ADMIN) as client:
        answer = client.get(path)
    assert answer.status_code == 200
    assert answer.text.count("<h1") == 1
    assert "None" not in re.sub(r"<[^>]*>", "", answer.text)


@pytest.mark.parametrize(
    "path", ["/", "/recommendations", "/drift", "/proof", "/jobs", "/audit", "/tokens"]
)
def test_every_page_renders_with_an_empty_store(
    serve: Callable[[Store], Served], store: Store, path: str
) -> None:
    with serve(store).browser(Role.ADMIN) as client:
        answer = client.get(path)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/recommendations/999",
        "/recommendations/abc",
        "/replays/999",
        "/divergences/99999999999999999999",
        "/routes/unknown",
        "/jobs?job=unknown",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
    ],
)
def test_what_is_not_there_is_a_plain_404(shared: Served, path: str) -> None:
    with shared.browser(Role.VIEWER) as client:
        answer = client.get(path)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "path", ["/?period=7", "/?period=x", "/recommendations?state=lost", "/routes/chat?period=-1"]
)
def test_a_value_that_is_not_offered_is_refused_in_one_line(shared: Served, path: str) -> None:
    with shared.browser(Role.VIEWER) as client:
        answer = client.get(path)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text


def test_the_overview_shows_no_data_where_nothing_was_drafted(shared: Served) -> None:
    with shared.browser(Role.VIEWER) as client:
        page = client.get("/").text
    assert '<td class="num none">no data</td>' in page
    assert "draft_model k=3" in page
    assert "2 recommendations" in page


def test_the_overview_says_when_the_watch_is_stale(
    serve: Callable[..., Served], full_store: Store
) -> None:
    with full_store.writing() as session:
        cursor = facts.latest_cursor(session, ENGINE)
        assert cursor is not None
        facts.note_pull(session, cursor, utc_now().timestamp() - 500, None)
    with serve(full_store, stale_after_s=30).browser(Role.VIEWER) as client:
        page = client.get("/").text
    assert "stale" in page
    assert "last approved plan stays in force" in page


def test_hostile_texts_are_shown_and_never_run(served: Served) -> None:
    said = replace(
        recommendation("evil", 0.7),
        reasons=(HOSTILE,),
        would_change_mind=(HOSTILE,),
    )
    with served.store.writing() as session:
        stored = recommendations.add(session, ENGINE, said, PLAN, who=HOSTILE, at=utc_now())
        entry = audit.AuditEntry(
            at=utc_now(), who=HOSTILE, action="x", target="y", outcome="done", detail=HOSTILE
        )
        audit.add(session, entry)
    assert stored is not None
    with served.browser(Role.OPERATOR) as client:
        csrf = csrf_of(client.get("/").text)
        client.post(f"/recommendations/{stored.id}/hold", data={"csrf": csrf, "reason": HOSTILE})
        pages = [
            client.get(path).text
            for path in (
                f"/recommendations/{stored.id}",
                "/recommendations",
                "/routes/evil",
                "/audit",
                "/routes/" + "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
                "/sign-in?to=/%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
            )
        ]
    for page in pages:
        assert "<script>alert" not in page
        assert "49" not in re.findall(r"\{\{7\*7\}\}|49(?=&#)", page)
    assert "&lt;script&gt;alert" in pages[0]


def test_an_operator_approves_and_the_transition_names_the_token(served: Served) -> None:
    with served.browser(Role.OPERATOR) as client:
        page = client.get("/recommendations/2").text
        form = {"csrf": csrf_of(page), "reason": ""}
        answer = client.post("/recommendations/2/approve", data=form)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/recommendations/2"
        after = client.get("/recommendations/2").text
    assert "s-promoted" in after
    assert "operator token" in after
    assert "Roll back" in after
    with served.store.reading() as session:
        steps = recommendations.transitions(session, 2)
        entry = audit.listed(session)[0]
    assert {step.who for step in steps[1:]} == {"operator token"}
    assert (entry.action, entry.outcome, entry.who) == (
        "recommendation.approve",
        "done",
        "operator token",
    )


@pytest.mark.parametrize("act", ["reject", "hold"])
def test_all_but_approving_needs_a_reason(served: Served, act: str) -> None:
    with served.browser(Role.OPERATOR) as client:
        csrf = csrf_of(client.get("/").text)
        path = f"/recommendations/2/{act}"
        refused = client.post(path, data={"csrf": csrf, "reason": " \n\t"})
        assert refused.status_code == 422
        assert "give a reason" in refused.text
        long = client.post(path, data={"csrf": csrf, "reason": "x" * 501})
        assert long.status_code == 422
        assert client.post(path, data={"csrf": csrf, "reason": "why\nnot"}).status_code == 303
    with served.store.reading() as session:
        assert recommendations.transitions(session, 2)[-1].why == "why not"


def test_the_second_of_two_operators_is_told_that_somebody_was_first(served: Served) -> None:
    with served.browser(Role.OPERATOR) as client:
        csrf = csrf_of(client.get("/").text)
        form = {"csrf": csrf, "reason": "no"}
        assert client.post("/recommendations/2/reject", data=form).status_code == 303
        second = client.post("/recommendations/2/approve", data=form)
    assert second.status_code == 409
    assert "recommendation 2 is rejected" in second.text


def test_an_engine_that_does_not_answer_leaves_the_recommendation_as_it_was(
    served: Served,
) -> None:
    served.review.engine_answers = False
    with served.browser(Role.OPERATOR) as client:
        csrf = csrf_of(client.get("/").text)
        form = {"csrf": csrf, "reason": "worth it & safe"}
        answer = client.post("/recommendations/2/approve", data=form)
        assert answer.status_code == 502
        assert "did not answer; start it" in answer.text
        assert 'value="worth it &amp; safe"' in answer.text
        assert "s-pending" in answer.text
    with served.store.reading() as session:
        assert recommendations.one(session, 2).state is State.PENDING
        assert audit.listed(session)[0].outcome == "refused"


def test_an_action_that_is_none_is_refused(shared: Served) -> None:
    with shared.browser(Role.OPERATOR) as client:
        csrf = csrf_of(client.get("/").text)
        answer = client.post("/recommendations/2/explode", data={"csrf": csrf})
    assert answer.status_code == 422
    assert "approve, reject, hold, roll_back" in answer.text


def test_a_viewer_sees_no_buttons_and_is_told_why(shared: Served) -> None:
    with shared.browser(Role.VIEWER) as client:
        page = client.get("/recommendations/2").text
    assert "formaction" not in page
    assert "needs the role operator" in page


def test_a_recommendation_that_changes_nothing_offers_nothing_to_decide(served: Served) -> None:
    base = recommendation("quiet", 0.4, Advice.NO_CHANGE)
    said = replace(base, changes=(replace(base.changes[0], load=LOAD_LEVELS[0], proposed=OFF),))
    with served.store.writing() as session:
        stored = recommendations.add(session, ENGINE, said, PLAN, who="recommend", at=utc_now())
    assert stored is not None
    with served.browser(Role.OPERATOR) as client:
        page = client.get(f"/recommendations/{stored.id}").text
        assert "nothing to decide" in page
        assert "2 recommendations" in client.get("/").text


def test_an_admin_makes_a_token_that_works_and_is_shown_once(served: Served) -> None:
    with served.browser(Role.ADMIN) as client:
        csrf = csrf_of(client.get("/tokens").text)
        form = {"csrf": csrf, "name": "Grace", "role": "operator"}
        page = client.post("/tokens", data=form).text
        token = re.findall(r"spt_[\w-]+", page)[0]
        assert token not in client.get("/tokens").text
        again = client.post("/tokens", data=form)
        assert again.status_code == 422
        assert "called &#39;Grace&#39; already" in again.text
    with served.browser() as other:
        other.post("/sign-in", data={"token": token})
        assert "Grace" in other.get("/").text


@pytest.mark.parametrize(
    ("name", "role"), [("", "viewer"), ("x" * 65, "viewer"), ("a\nb", "viewer"), ("a", "root")]
)
def test_a_token_with_a_bad_name_or_role_is_refused(shared: Served, name: str, role: str) -> None:
    with shared.browser(Role.ADMIN) as client:
        csrf = csrf_of(client.get("/tokens").text)
        answer = client.post("/tokens", data={"csrf": csrf, "name": name, "role": role})
    assert answer.status_code == 422


def test_the_history_page_of_a_route_covers_only_the_period(shared: Served) -> None:
    with shared.browser(Role.VIEWER) as client:
        short = client.get("/routes/chat?period=300").text
        long = client.get("/routes/chat?period=3600").text
    assert f"{timedelta(minutes=5).seconds // 60}\u00a0min" in short
    assert len(short) < len(long)


def test_a_recommendation_says_why_not_otherwise_and_what_to_try(shared: Served) -> None:
    with shared.browser(Role.VIEWER) as client:
        page = client.get("/recommendations/2").text
    assert "not proposed: it gives -5.0% against draft_model k=3" in page
    assert "Where it equals off" in page
    assert '<td class="num">22\u00a0%</td>' in page
    assert "What to try next" in page
    assert "A pool without speculation" in page
    assert "+4.1\u00a0%" in page
    assert 'title="counted on live traffic"' in page


def test_a_recommendation_in_force_shows_realised_beside_predicted(shared: Served) -> None:
    with shared.browser(Role.VIEWER) as client:
        page = client.get("/recommendations/1").text
        pending = client.get("/recommendations/2").text
    assert "What it brought" in page
    assert "this is no experiment" in page
    assert "29 windows, 725 steps" in page
    assert "11 windows, 275 steps" in page
    assert "chat\u00a050\u00a0%, code_edit\u00a050\u00a0%" in page.replace("&nbsp;", "\u00a0")
    assert "36.0 to 44.0" in page
    assert "What it brought" not in pending


def test_too_few_windows_are_said_to_be_too_few(
    serve: Callable[[Store], Served], store: Store
) -> None:
    said = recommendation("code_edit", 0.74)
    with store.writing() as session:
        stored = recommendations.add(session, ENGINE, said, PLAN, who="recommend", at=utc_now())
        assert stored is not None
        for state in (State.APPROVED, State.STAGED, State.PROMOTED):
            recommendations.move(session, stored.id, state, who="Ada", at=utc_now(), why="pays")
    with serve(store).browser(Role.VIEWER) as client:
        page = client.get(f"/recommendations/{stored.id}").text
    assert page.count("not enough data yet") == 2 * len(said.changes)
