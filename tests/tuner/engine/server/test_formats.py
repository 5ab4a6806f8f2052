from __future__ import annotations

import json
import re

import openai
import pydantic
import pytest

from tests.tuner.engine.server.running import MODEL, RunningEngine
from tests.tuner.engine.server.test_errors import CHAT, COMPLETIONS, MESSAGES, refusal

DRAFT_4 = {"method": "draft_model", "k": 4}
LOOKUP_8 = {"method": "prompt_lookup", "k": 8}


class Reading(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    ok: bool
    level: int = pydantic.Field(ge=0, le=99)


SCHEMA = Reading.model_json_schema()


@pytest.fixture
def no_white_space(engine: RunningEngine) -> dict[str, int]:
    """Bans what a random model would fill its answers with."""
    texts = {token: engine.loaded.codec.decode([token]) for token in range(320)}
    return {str(token): -100 for token, text in texts.items() if not text.strip()}


@pytest.mark.parametrize("speculation", [{"method": "off"}, DRAFT_4, LOOKUP_8])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_chat_answer_is_valid_against_its_json_schema(
    client: openai.OpenAI,
    no_white_space: dict[str, int],
    speculation: dict[str, object],
    temperature: float,
):
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "return the value of the user as json"}],
        temperature=temperature,
        seed=5,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "reading", "schema": SCHEMA, "strict": True},
        },
        logit_bias=no_white_space,
        extra_body={"speculation": speculation},
    )

    assert answer.choices[0].finish_reason == "stop"
    Reading.model_validate_json(answer.choices[0].message.content or "")


def test_the_official_clients_parse_gets_its_model_back(
    client: openai.OpenAI, no_white_space: dict[str, int]
):
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "return the value"}],
        temperature=0,
        response_format=Reading,
        logit_bias=no_white_space,
    )

    assert isinstance(answer.choices[0].message.parsed, Reading)


def test_a_json_object_is_an_object_as_far_as_it_goes(client: openai.OpenAI):
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "return json"}],
        temperature=0,
        max_tokens=30,
        response_format={"type": "json_object"},
    )

    text = answer.choices[0].message.content or ""
    assert text.startswith("{")
    assert answer.choices[0].finish_reason == "length" or isinstance(json.loads(text), dict)


@pytest.mark.parametrize(
    ("shape", "pattern"),
    [
        ({"regex": "[a-f]{3}-[0-9]{2}"}, "[a-f]{3}-[0-9]{2}"),
        ({"choice": ["the user", "the model"]}, "the user|the model"),
        ({"grammar": 'start: "on" | "off" INT\nINT: /[0-9]{2}/'}, "on|off[0-9]{2}"),
        ({"json": {"enum": ["naïve", "東京"]}}, '"naïve"|"東京"'),
        ({"json": json.dumps({"const": 7})}, "7"),
        ({"json_object": True, "regex": None}, r"\{"),
    ],
)
@pytest.mark.parametrize("speculation", [{"method": "off"}, DRAFT_4])
def test_structured_outputs_take_vllms_forms(
    engine: RunningEngine, shape: dict, pattern: str, speculation: dict[str, object]
):
    said = {name: value for name, value in shape.items() if value is not None}
    body = {"prompt": "the user", "structured_outputs": said, "speculation": speculation}
    answer = engine.http.post(COMPLETIONS, json={**body, "max_tokens": 16, "seed": 1}).json()

    match = re.fullmatch if "json_object" not in said else re.match
    assert match(pattern, answer["choices"][0]["text"]), answer


def test_a_streamed_answer_is_the_same_as_a_whole_one(engine: RunningEngine):
    body = {"prompt": "the user", "structured_outputs": {"regex": "[a-z]{3,9} [0-9]+;"}, "seed": 3}
    whole = engine.http.post(COMPLETIONS, json={**body, "max_tokens": 24}).json()
    pieces = []
    with engine.http.stream(
        "POST", COMPLETIONS, json={**body, "max_tokens": 24, "stream": True}
    ) as r:
        for line in r.iter_lines():
            if line.startswith("data: {"):
                pieces += [choice["text"] for choice in json.loads(line[6:])["choices"]]

    assert "".join(pieces) == whole["choices"][0]["text"]


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"response_format": {"type": "json"}}, "response_format.type", "must be 'text'"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format",
            "needs json_schema exactly where type is 'json_schema'",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
            "is missing",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "objekt"}},
                }
            },
            "response_format",
            "response_format: Invalid type: objekt",
        ),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs", "unclosed group"),
        (
            {"structured_outputs": {}},
            "structured_outputs",
            "needs exactly one of json, json_object",
        ),
        (
            {"structured_outputs": {"regex": "a", "choice": ["b"]}},
            "structured_outputs",
            "needs exactly one of",
        ),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "at least 1 item"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "is not JSON"),
        (
            {"structured_outputs": {"json": "[1]"}},
            "structured_outputs.json",
            "must be a JSON schema",
        ),
        (
            {"structured_outputs": {"pattern": "a"}},
            "structured_outputs.pattern",
            "unknown parameter",
        ),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "both shape the answer; send one",
        ),
        (
            {"structured_outputs": {"regex": "a" * 70_000}},
            "structured_outputs",
            "65536 is the most",
        ),
    ],
)
def test_a_wrong_shape_is_refused_with_the_place_and_the_reason(
    engine: RunningEngine, body: dict[str, object], param: str, message: str
):
    error = refusal(engine.http.post(CHAT, json={"messages": MESSAGES, **body}), 400)

    assert error["param"] == param
    assert message in error["message"]


def test_a_captured_request_replays_under_its_grammar(engine: RunningEngine):
    engine.http.put("/spec/capture", json={"enabled": True}).raise_for_status()
    shape = {"choice": ["the user", "the model"]}
    body = {"prompt": "is", "structured_outputs": shape, "max_tokens": 16}
    engine.http.post(COMPLETIONS, json=body).raise_for_status()
    captured = engine.http.get("/spec/captures").json()["records"][-1]
    engine.http.put("/spec/capture", json={"enabled": False}).raise_for_status()

    assert captured["sampling"]["structured_outputs"] == shape
    again = {"prompt": captured["prompt_ids"], "structured_outputs": shape, "max_tokens": 16}
    answer = engine.http.post(COMPLETIONS, json=again).json()
    assert answer["choices"][0]["text"] in shape["choice"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_bias_against_all_that_a_grammar_allows_is_the_requests_own_fault(
    engine: RunningEngine, stream: bool
):
    ids = range(engine.loaded.capabilities.vocab_size - 1)
    body = {
        "prompt": "a",
        "logit_bias": {str(token): -100 for token in ids},
        "structured_outputs": {"choice": ["yes"]},
        "stream": stream,
    }

    answer = engine.http.post("/v1/completions", json=body)

    error = json.loads(answer.text.splitlines()[0].removeprefix("data: "))["error"]
    assert error["type"] == "invalid_request_error"
    assert "no token can be drawn" in error["message"]
    assert answer.status_code == (200 if stream else 400)
