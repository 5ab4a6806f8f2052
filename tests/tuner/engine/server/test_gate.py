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
