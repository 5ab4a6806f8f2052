from __future__ import annotations

import json
import re

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.engine.server.running import MODEL, RunningEngine

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def refusal(answer: httpx.Response, status: int) -> dict:
    """Return OpenAI's error object, its shape checked."""
    assert answer.status_code == status, answer.text
    assert answer.headers["x-request-id"]
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "\n" not in error["message"]
    assert "Traceback" not in error["message"]
    return error


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (
            {"temperature": -1},
            "temperature",
            "temperature must be greater than or equal to 0, got -1",
        ),
        (
            {"temperature": 2.5},
            "temperature",
            "temperature must be less than or equal to 2, got 2.5",
        ),
        ({"temperature": "1"}, "temperature", "temperature must be a valid number, got '1'"),
        ({"top_p": 1.5}, "top_p", "top_p must be less than or equal to 1, got 1.5"),
        ({"top_p": 0}, "top_p", "top_p must be greater than 0, got 0"),
        ({"max_tokens": -1}, "max_tokens", "max_tokens must be greater than or equal to 0, got -1"),
        ({"max_tokens": 2.5}, "max_tokens", "max_tokens must be a valid integer"),
        ({"max_tokens": True}, "max_tokens", "max_tokens must be a valid integer, got True"),
        ({"min_tokens": 20}, "min_tokens", "min_tokens 20 is above max_tokens 16; lower it"),
        ({"seed": 2**63}, "seed", "seed must be less than 9223372036854775808"),
        ({"logprobs": 21}, "logprobs", "logprobs must be less than or equal to 20, got 21"),
        ({"stop": [""]}, "stop", "stop must be a non-empty string or a list of non-empty strings"),
        ({"stop": ["x"] * 17}, "stop", "stop Value should have at most 16 items"),
        ({"stop_token_ids": [320]}, "stop_token_ids", "token id 320 is not in 0 to 319"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "logit_bias key 'x' is not a token id"),
        ({"logit_bias": {"5": 101}}, "logit_bias", "bias of token 5 must be -100 to 100, got 101"),
        ({"logit_bias": {"320": 1}}, "logit_bias", "token id 320 is not in 0 to 319"),
        ({"logit_bias": dict.fromkeys(map(str, range(320)), -100)}, "logit_bias", "bans each of"),
        ({"n": 0}, "n", "n must be greater than or equal to 1, got 0"),
        ({"n": 65}, "n", "1 prompts with 65 answers each are 65 rows, the queue holds 64"),
        ({"prompt": ["a"] * 65}, "prompt", "65 prompts with 1 answers each are 65 rows"),
        ({"n": 3, "best_of": 2}, "best_of", "best_of 2 is below n 3; raise it"),
        ({"best_of": 2, "stream": True}, "best_of", "best_of above n cannot be streamed"),
        ({"echo": 1}, "echo", "echo must be a valid boolean, got 1"),
        ({"suffix": "x"}, "suffix", "suffix is not supported by this engine"),
        ({"temprature": 0}, "temprature", "unknown parameter 'temprature'; remove it"),
        ({"stream_options": {}}, "stream_options", "stream_options belongs to streams"),
        (
            {"stream": True, "stream_options": {"usage": True}},
            "stream_options.usage",
            "unknown parameter 'stream_options.usage'",
        ),
        (
            {"speculation": {"method": "eagle", "k": 2}},
            "speculation",
            "'eagle' has no drafter loaded; use",
        ),
        ({"speculation": {"method": "off", "k": 2}}, "speculation", "k must be 0 when .*, got 2"),
        ({"speculation": {"method": "draft_model", "k": 99}}, "speculation", "k must be 1 to 16"),
        (
            {"speculation": {"method": "prompt_lookup", "k": 2, "lookup_max": 33}},
            "speculation",
            "lookup_max <= 32, got 1 and 33",
        ),
        ({"speculation": {"methods": "off"}}, "speculation", r"unknown setting key \['methods'\]"),
        (
            {"speculation": {"method": "draft_model", "k": 2, "drafter": "big"}},
            "speculation",
            "drafter 'big' is not loaded for draft_model; loaded: 'tiny'",
        ),
        ({"prompt": 5}, "prompt", "prompt must be a string or a list of token ids"),
        ({"prompt": [True]}, "prompt", "prompt must be a string or a list of token ids"),
        ({"prompt": ["a", 5]}, "prompt", "prompt must be a string or a list of token ids, or a"),
        ({"prompt": ["a", ""]}, "prompt", "prompt is empty"),
        ({"prompt": [[5], [320]]}, "prompt", "prompt: token id 320 is not in 0 to 319"),
        ({"prompt": [320]}, "prompt", "prompt: token id 320 is not in 0 to 319"),
        ({"prompt": [-1]}, "prompt", "prompt: token id -1 is not in 0 to 319"),
        ({"prompt": ""}, "prompt", "prompt is empty"),
        ({"prompt": []}, "prompt", "prompt is empty"),
    ],
)
def test_a_wrong_completion_parameter_is_named_with_value_and_fix(
    engine: RunningEngine, body: dict[str, object], param: str, message: str
):
    error = refusal(engine.http.post(COMPLETIONS, json={"prompt": "hi", **body}), 400)

    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert re.search(message, error["message"]), error["message"]


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"messages": []}, "messages", "messages List should have at least 1 item"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role", "must be 'system'"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", "messages.0.content is missing"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages.0.content",
            "part of type 'image_url' cannot be read; only text parts can",
        ),
        ({"max_tokens": 0}, "max_tokens", "max_tokens must be greater than or equal to 1, got 0"),
        ({"tools": [{"type": "function"}]}, "tools.0.function", "tools.0.function is missing"),
        ({"top_logprobs": 2}, "top_logprobs", "top_logprobs needs logprobs; set logprobs to true"),
        ({"reasoning_effort": "low"}, "reasoning_effort", "is not supported .*; leave it out"),
    ],
)
def test_a_wrong_chat_parameter_is_named_with_value_and_fix(
    engine: RunningEngine, body: dict[str, object], param: str, message: str
):
    error = refusal(engine.http.post(CHAT, json={"messages": MESSAGES, **body}), 400)

    assert error["param"] == param
    assert re.search(message, error["message"]), error["message"]


@pytest.mark.parametrize(
    "extra",
    [
        {"n": 1, "best_of": 1, "echo": False, "suffix": None, "user": "me", "logit_bias": None},
        {"n": None, "stop": None, "seed": None, "top_k": -1, "temperature": None, "stream": None},
    ],
)
def test_parameters_that_ask_for_what_happens_anyway_are_taken(
    engine: RunningEngine, extra: dict[str, object]
):
    body = {"model": MODEL, "prompt": "hi", "max_tokens": 2, **extra}

    assert engine.http.post(COMPLETIONS, json=body).status_code == 200


def test_chat_parameters_that_ask_for_what_happens_anyway_are_taken(engine: RunningEngine):
    extra = {
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "metadata": {"a": "b"},
        "store": False,
        "parallel_tool_calls": True,
        "service_tier": "auto",
        "max_tokens": 2,
    }

    answer = engine.http.post(CHAT, json={"messages": MESSAGES, **extra})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b'{"prompt": "a",}', "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b'{"prompt": "\\ud800"}', "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"[]", "the body must be an object"),
        (b'{"prompt": "a", "temperature": NaN}', "temperature must be a finite number, got nan"),
        (b'{"prompt": "a", "temperature": 1e999}', "temperature must be a finite number, got inf"),
        (b"{}", "prompt is missing"),
    ],
)
def test_a_malformed_body_is_refused_in_one_line(engine: RunningEngine, raw: bytes, message: str):
    error = refusal(engine.http.post(COMPLETIONS, content=raw), 400)

    assert message in error["message"]


def test_a_body_beyond_the_limit_is_refused(engine: RunningEngine):
    raw = b'{"prompt": "' + b"a" * (8 * 2**20) + b'"}'

    error = refusal(engine.http.post(COMPLETIONS, content=raw), 413)

    assert "longer than 8388608 bytes" in error["message"]


def test_a_prompt_longer_than_the_context_names_both_lengths(engine: RunningEngine):
    error = refusal(engine.http.post(COMPLETIONS, json={"prompt": [5] * 300}), 400)

    assert error["code"] == "context_length_exceeded"
    assert "300 tokens" in error["message"]
    assert "256" in error["message"]


def test_an_answer_that_cannot_fit_names_prompt_limit_and_context(engine: RunningEngine):
    body = {"prompt": [5] * 200, "max_tokens": 57}

    error = refusal(engine.http.post(COMPLETIONS, json=body), 400)

    assert (error["code"], error["param"]) == ("context_length_exceeded", "max_tokens")
    assert "200 prompt tokens and max_tokens 57 exceed the context of 256" in error["message"]


def test_a_prompt_that_leaves_room_for_one_token_gets_one(engine: RunningEngine):
    answer = engine.http.post(COMPLETIONS, json={"prompt": [5] * 255})

    assert answer.json()["usage"]["completion_tokens"] == 1


def test_another_model_is_refused_with_the_served_one(engine: RunningEngine):
    for path, body in ((COMPLETIONS, {"prompt": "a"}), (CHAT, {"messages": MESSAGES})):
        error = refusal(engine.http.post(path, json={"model": "gpt-4", **body}), 404)
        assert error["code"] == "model_not_found"
        assert error["message"] == "model 'gpt-4' is not served here; use 'tiny'"


def test_a_shadow_header_that_is_neither_0_nor_1_is_refused(engine: RunningEngine):
    answer = engine.http.post(
        COMPLETIONS, json={"prompt": "a"}, headers={"x-spectuner-shadow": "yes"}
    )

    assert "x-spectuner-shadow must be 0 or 1, got 'yes'" in refusal(answer, 400)["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v1/nothing", 404, "unknown path '/v1/nothing'"),
        ("GET", "/", 404, "unknown path '/'"),
        ("GET", "/docs", 404, "unknown path '/docs'"),
        ("POST", "/v1/models", 405, "POST is not allowed on '/v1/models'; use GET"),
        ("DELETE", "/spec/plan", 405, "DELETE is not allowed on '/spec/plan'"),
        ("GET", "/v1/completions", 405, "GET is not allowed on '/v1/completions'; use POST"),
    ],
)
def test_unknown_paths_and_methods_are_refused_in_the_same_shape(
    engine: RunningEngine, method: str, path: str, status: int, message: str
):
    assert message in refusal(engine.http.request(method, path), status)["message"]


def test_the_official_client_raises_its_own_errors(client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError, match="temperature must be") as hit:
        client.completions.create(model=MODEL, prompt="a", temperature=-1)
    assert hit.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="gpt-4", prompt="a")
    assert missing.value.code == "model_not_found"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
sensible = {
    "temperature": st.floats(0, 2),
    "top_p": st.floats(1e-9, 1),
    "top_k": st.integers(-1, 400),
    "min_p": st.floats(0, 1),
    "repetition_penalty": st.floats(1e-9, 10),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "logit_bias": st.dictionaries(st.integers(0, 330).map(str), st.floats(-100, 100), max_size=4),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "min_tokens": st.integers(0, 9),
    "stop": st.text(max_size=3) | st.lists(st.text(min_size=1, max_size=3), max_size=3),
    "stop_token_ids": st.lists(st.integers(0, 330), max_size=3),
    "ignore_eos": st.booleans(),
    "logprobs": st.integers(0, 20),
    "return_token_ids": st.booleans(),
    "stream": st.booleans(),
    "speculation": st.fixed_dictionaries(
        {
            "method": st.sampled_from(["off", "draft_model", "prompt_lookup"]),
            "k": st.integers(0, 17),
        },
        optional={"rule": st.sampled_from(["rejection", "token_match"])},
    ),
}
any_body = st.fixed_dictionaries(
    {"prompt": st.text(min_size=1, max_size=12) | st.lists(st.integers(0, 319), max_size=5)},
    optional=sensible,
)
wild_body = st.dictionaries(
    st.sampled_from([*sensible, "prompt", "messages", "model", "n", "echo", "stream_options"])
    | st.text(max_size=6),
    json_values,
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(body=any_body)
def test_no_legal_looking_body_makes_the_engine_fail(
    engine: RunningEngine, body: dict[str, object]
):
    answer = engine.http.post(COMPLETIONS, json={"max_tokens": 8, **body})

    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 200:
        assert '"error"' not in answer.text
    assert engine.loop.fault is None


@settings(max_examples=150, deadline=None)
@given(body=wild_body, path=st.sampled_from([COMPLETIONS, CHAT, "/spec/capture", "/spec/plan"]))
def test_no_body_at_all_makes_the_engine_fail(
    engine: RunningEngine, body: dict[str, object], path: str
):
    method = "PUT" if path.startswith("/spec") else "POST"

    answer = engine.http.request(method, path, content=json.dumps(body))

    assert answer.status_code in (200, 400, 404, 409, 422), answer.text
    assert engine.loop.fault is None


@settings(max_examples=100, deadline=None)
@given(raw=st.binary(max_size=60), path=st.sampled_from([COMPLETIONS, CHAT, "/spec/plan"]))
def test_no_bytes_make_the_engine_fail(engine: RunningEngine, raw: bytes, path: str):
    method = "PUT" if path.startswith("/spec") else "POST"

    assert engine.http.request(method, path, content=raw).status_code in (400, 422)
