from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest

from dashboards.access import Role
from tests.tuner.api.console_seeding import utc_now
from tests.tuner.api.served import Served
from tuner.api.auth import MAX_FAILURES
from tuner.api.tokens import issue
from tuner.store import Store, access, audit


def session_cookie(answer: httpx.Response) -> str:
    return answer.headers["set-cookie"]


def test_the_link_exchanges_a_token_for_a_strict_http_only_cookie(shared: Served) -> None:
    with shared.browser() as client:
        answer = client.get("/sign-in", params={"token": shared.tokens[Role.VIEWER]})
        cookie = session_cookie(answer).lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert shared.tokens[Role.VIEWER] not in cookie
        assert f"spectuner_{shared.settings.port}=" in cookie
        assert client.get("/").status_code == 200


def test_the_cookie_is_secure_behind_https(serve: Callable[..., Served], store: Store) -> None:
    served = serve(store, public_url="https://tuner.example")
    with served.browser() as client:
        answer = client.get("/sign-in", params={"token": served.tokens[Role.VIEWER]})
    assert "secure" in session_cookie(answer).lower()


def test_pages_ask_for_a_sign_in_and_lead_back_afterwards(shared: Served) -> None:
    with shared.browser() as client:
        page = client.get("/recommendations/2")
        assert page.status_code == 401
        assert 'name="to" value="/recommendations/2"' in page.text
        form = {"token": shared.tokens[Role.VIEWER], "to": "/recommendations/2"}
        answer = client.post("/sign-in", data=form)
        assert 'content="0;url=/recommendations/2"' in answer.text


@pytest.mark.parametrize("to", ["https://evil.example", "//evil.example", "/\\evil.example"])
def test_signing_in_never_leads_to_another_site(shared: Served, to: str) -> None:
    with shared.browser() as client:
        form = {"token": shared.tokens[Role.VIEWER], "to": to}
        assert "evil" not in client.post("/sign-in", data=form).text
        assert "evil" not in client.get("/sign-in", params={"to": to}).text


@pytest.mark.parametrize("token", ["", "spt_wrong", "x" * 5000, "' OR 1=1 --"])
def test_a_wrong_token_opens_nothing(shared: Served, token: str) -> None:
    with shared.browser() as client:
        answer = client.post("/sign-in", data={"token": token})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert "unknown, expired or revoked" in answer.text


def test_too_many_wrong_tokens_close_the_door_but_not_open_sessions(served: Served) -> None:
    with served.browser(Role.VIEWER) as inside, served.browser() as outside:
        for _ in range(MAX_FAILURES):
            assert outside.post("/sign-in", data={"token": "wrong"}).status_code == 401
        right = {"token": served.tokens[Role.ADMIN]}
        refused = outside.post("/sign-in", data=right)
        assert refused.status_code == 429
        assert "try again in" in refused.text
        api = outside.get("/api/v1/jobs", headers={"authorization": "Bearer wrong"})
        assert api.status_code == 429
        assert api.headers["retry-after"] == "60"
        assert inside.get("/").status_code == 200


def test_an_expired_token_opens_nothing_and_ends_its_sessions(served: Served) -> None:
    soon = utc_now() + timedelta(seconds=1.5)
    token = issue(
        served.store, name="brief", role=Role.ADMIN, at=utc_now(), by="test", expires_at=soon
    )
    with served.browser() as client:
        client.get("/sign-in", params={"token": token})
        assert client.get("/").status_code == 200
        while utc_now() < soon:
            pass
        assert client.get("/").status_code == 401
        assert client.post("/sign-in", data={"token": token}).status_code == 401


def test_revoking_a_token_ends_its_sessions_at_once(served: Served) -> None:
    with served.browser(Role.OPERATOR) as client, served.api(Role.ADMIN) as admin:
        assert client.get("/").status_code == 200
        number = next(
            line["id"]
            for line in admin.get("/api/v1/tokens").json()["tokens"]
            if line["role"] == "operator"
        )
        assert admin.delete(f"/api/v1/tokens/{number}").json()["revoked_at"]
        assert client.get("/").status_code == 401


def test_signing_out_ends_the_session_even_for_a_kept_cookie(shared: Served) -> None:
    with shared.browser(Role.VIEWER) as client:
        kept = dict(client.cookies)
        csrf = csrf_of(client.get("/").text)
        assert client.post("/sign-out", data={"csrf": csrf}).headers["location"] == "/sign-in"
    with shared.browser() as thief:
        thief.cookies.update(kept)
        assert thief.get("/").status_code == 401


def test_signing_out_outlives_a_restart_of_the_service(
    served: Served, serve: Callable[..., Served]
) -> None:
    with served.browser(Role.VIEWER) as client, served.browser(Role.ADMIN) as other:
        kept = dict(client.cookies)
        csrf = csrf_of(client.get("/").text)
        client.post("/sign-out", data={"csrf": csrf})
        restarted = serve(served.store)
        with restarted.browser() as thief:
            thief.cookies.set(f"spectuner_{restarted.settings.port}", *kept.values())
            assert thief.get("/").status_code == 401
        assert other.get("/").status_code == 200
    with restarted.browser(Role.VIEWER) as again:
        assert again.get("/").status_code == 200


@pytest.mark.parametrize("cookie", ["", "rubbish", "WzEsICJ4Il0.abc.def", "\u00ff" * 9])
def test_a_forged_cookie_is_no_session(shared: Served, cookie: str) -> None:
    with shared.browser() as client:
        header = f"spectuner_{shared.settings.port}={cookie}".encode("latin-1")
        assert client.get("/", headers={b"cookie": header}).status_code == 401


def test_a_session_signed_with_another_secret_is_none(shared: Served) -> None:
    from itsdangerous import URLSafeTimedSerializer

    forged = URLSafeTimedSerializer("t" * 48, salt="spectuner session").dumps([1, "nonce"])
    with shared.browser() as client:
        client.cookies.set(f"spectuner_{shared.settings.port}", str(forged))
        assert client.get("/").status_code == 401


@pytest.mark.parametrize(
    ("role", "path", "status"),
    [
        (Role.VIEWER, "/recommendations/2/approve", 403),
        (Role.VIEWER, "/tokens", 403),
        (Role.OPERATOR, "/tokens", 403),
        (Role.OPERATOR, "/tokens/1/revoke", 403),
    ],
)
def test_a_role_that_is_too_low_is_refused_on_every_form(
    shared: Served, role: Role, path: str, status: int
) -> None:
    with shared.browser(role) as client:
        csrf = csrf_of(client.get("/").text)
        answer = client.post(path, data={"csrf": csrf, "reason": "x", "name": "n", "role": "admin"})
        assert answer.status_code == status
        assert f"has role {role}" in answer.text


@pytest.mark.parametrize(
    "path", ["/recommendations/2/approve", "/tokens", "/tokens/1/revoke", "/sign-out"]
)
@pytest.mark.parametrize("csrf", ["", "wrong", "\u00fc"])
def test_a_form_without_the_sessions_own_value_is_refused(
    served: Served, path: str, csrf: str
) -> None:
    with served.browser(Role.ADMIN) as client:
        answer = client.post(path, data={"csrf": csrf, "name": "n", "role": "viewer"})
        assert answer.status_code == 403
        assert "reload the page" in answer.text
    with served.store.reading() as session:
        assert len(access.listed(session)) == len(Role)


def test_the_form_value_of_one_session_is_not_that_of_another(shared: Served) -> None:
    with shared.browser(Role.ADMIN) as first, shared.browser(Role.ADMIN) as second:
        csrf = csrf_of(first.get("/").text)
        assert second.post("/sign-out", data={"csrf": csrf}).status_code == 403


def test_sign_ins_and_refusals_are_audited_without_the_token(served: Served) -> None:
    with served.browser(Role.VIEWER) as client:
        client.post("/sign-in", data={"token": "spt_wrong"})
    with served.store.reading() as session:
        entries = [one for one in audit.listed(session) if one.action == "sign_in"]
    assert [(one.who, one.outcome) for one in entries] == [
        ("127.0.0.1", "refused"),
        ("viewer token", "done"),
    ]
    assert not any("spt_" in f"{one.target} {one.detail}" for one in entries)


def csrf_of(page: str) -> str:
    return page.split('name="csrf" value="')[1].split('"')[0]
