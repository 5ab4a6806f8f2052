from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.tuner.engine.server.running import RunningEngine, running_engine, tiny_settings

PATHS = ["/v1/models", "/metrics", "/spec/plan", "/spec/steps", "/spec/captures", "/nothing"]


@pytest.fixture(scope="module")
def locked(tiny_model: Path) -> Iterator[RunningEngine]:
    with running_engine(tiny_settings(tiny_model), api_key="sk-right") as running:
        yield running


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", "sk-right", "Basic sk-right"]
)
def test_without_the_key_no_path_tells_anything(
    locked: RunningEngine, path: str, header: str | None
):
    headers = {} if header is None else {"authorization": header}

    answer = httpx.get(locked.url + path, headers=headers)

    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "sk-right" not in answer.text


def test_with_the_key_every_path_answers(locked: RunningEngine):
    statuses = [locked.http.get(path).status_code for path in PATHS]

    assert statuses == [200, 200, 200, 200, 200, 404]


def test_the_scheme_may_be_written_in_any_case(locked: RunningEngine):
    answer = httpx.get(f"{locked.url}/v1/models", headers={"authorization": "bearer sk-right"})

    assert answer.status_code == 200


def test_a_key_may_hold_any_character(tiny_model: Path):
    with running_engine(tiny_settings(tiny_model), api_key="schlüssel") as running:
        right = {b"authorization": "Bearer schlüssel".encode()}
        wrong = {b"authorization": b"Bearer schlussel"}

        assert httpx.get(f"{running.url}/v1/models", headers=right).status_code == 200
        assert httpx.get(f"{running.url}/v1/models", headers=wrong).status_code == 401


def test_the_health_check_needs_no_key(locked: RunningEngine):
    assert httpx.get(f"{locked.url}/health").json()["status"] == "ok"


def test_a_header_that_is_no_ascii_is_refused_like_any_wrong_key(locked: RunningEngine):
    answer = httpx.get(f"{locked.url}/v1/models", headers={b"authorization": b"Bearer \xff\xfe"})

    assert answer.status_code == 401


def test_the_official_client_is_let_in_with_the_key_and_only_then(locked: RunningEngine):
    def models_with(key: str) -> list[str]:
        with openai.OpenAI(base_url=f"{locked.url}/v1", api_key=key, max_retries=0) as client:
            return [model.id for model in client.models.list()]

    assert models_with("sk-right") == ["tiny"]
    with pytest.raises(openai.AuthenticationError, match="the API key is missing or wrong"):
        models_with("sk-wrong")


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/spec/plan"])
def test_head_is_answered_wherever_get_is_and_without_a_body(engine: RunningEngine, path: str):
    answer = engine.http.head(path)

    assert (answer.status_code, answer.content) == (200, b"")
    assert engine.http.head("/nothing").status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8401", "127.0.0.1.evil.example"])
@pytest.mark.parametrize("path", ["/health", "/v1/models", "/spec/captures", "/nothing"])
def test_a_page_that_rebinds_its_name_gets_nothing(engine: RunningEngine, host: str, path: str):
    answer = engine.http.get(path, headers={"host": host})

    assert answer.status_code == 421
    assert answer.json()["error"]["message"] == (
        f"host {host!r} is not served here; use 127.0.0.1, or start the engine with "
        "--allowed-host or --api-key"
    )


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8401", "[::1]:8401"])
def test_every_name_of_loopback_is_served(engine: RunningEngine, host: str):
    assert engine.http.get("/health", headers={"host": host}).status_code == 200


def test_a_name_that_was_allowed_is_served(tiny_model: Path):
    with running_engine(tiny_settings(tiny_model), allowed_hosts=("engine.internal",)) as running:
        answer = running.http.get("/v1/models", headers={"host": "engine.internal:8401"})

    assert answer.status_code == 200


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
def test_captured_prompts_are_not_given_through_a_proxy_without_the_key(
    engine: RunningEngine, locked: RunningEngine, header: str
):
    passed_on = {header: "203.0.113.9"}
    refused = engine.http.get("/spec/captures", headers=passed_on)
    changed = engine.http.put("/spec/capture", json={"enabled": True}, headers=passed_on)

    assert (refused.status_code, changed.status_code) == (403, 403)
    assert refused.json()["error"]["code"] == "capture_forbidden"
    assert engine.http.get("/v1/models", headers=passed_on).status_code == 200
    assert locked.http.get("/spec/captures", headers=passed_on).status_code == 200


def test_with_a_key_any_name_is_served(locked: RunningEngine):
    assert locked.http.get("/v1/models", headers={"host": "llm.example"}).status_code == 200
