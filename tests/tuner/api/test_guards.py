from __future__ import annotations

import pytest

from dashboards.access import Role
from tests.tuner.api.served import Served
from tuner.api.guards import MAX_BODY_BYTES, host_name


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8400", "localhost"),
        ("[::1]:8400", "::1"),
        ("[::1", None),
        (":8400", None),
    ],
)
def test_a_host_header_is_read_without_port_and_brackets(header: str, host: str | None) -> None:
    assert host_name(header) == host


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8400", "127.0.0.1.evil.example"])
def test_another_host_name_is_refused_so_that_dns_rebinding_leads_nowhere(
    shared: Served, host: str
) -> None:
    with shared.api(Role.ADMIN) as client:
        answer = client.get("/api/v1/overview", headers={"host": host})
    assert answer.status_code == 421
    assert host in answer.json()["error"]["message"]
    assert "SPECTUNER_ALLOWED_HOSTS" in answer.json()["error"]["message"]


@pytest.mark.parametrize("host", ["localhost", "[::1]:1", "127.0.0.1:99"])
def test_loopback_names_are_served(shared: Served, host: str) -> None:
    with shared.browser() as client:
        assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/sign-in", "/health", "/nope", "/api/v1/overview"])
def test_every_answer_carries_the_security_headers(shared: Served, path: str) -> None:
    with shared.browser() as client:
        headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


def test_a_long_body_is_refused_whether_announced_or_not(shared: Served) -> None:
    body = b"x" * (MAX_BODY_BYTES + 1)
    with shared.browser() as client:
        announced = client.post("/sign-in", content=body)
        streamed = client.post("/sign-in", content=iter([body[:40_000], body[40_000:]]))
    assert announced.status_code == streamed.status_code == 413


def test_a_page_holds_no_inline_script_or_style(shared: Served) -> None:
    with shared.browser(Role.ADMIN) as client:
        for path in ("/", "/routes/chat", "/recommendations/2", "/proof", "/jobs", "/tokens"):
            page = client.get(path).text
            assert "style=" not in page
            assert "onclick" not in page
            scripts = page.split("<script")[1:]
            assert scripts
            assert all(s.startswith((" src=", ' type="application/json">')) for s in scripts)
