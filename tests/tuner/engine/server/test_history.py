from __future__ import annotations

import openai
import pytest

from tests.tuner.engine.server.running import MODEL, RunningEngine
from tests.tuner.engine.server.test_errors import CHAT, refusal

USER = {"role": "user", "content": "return the value"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def usage_of(engine: RunningEngine, messages: list[dict[str, object]]) -> int:
    body = {"messages": messages, "max_tokens": 1}
    return engine.http.post(CHAT, json=body).raise_for_status().json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("as_dict", [False, True])
def test_an_answers_own_message_can_be_sent_back(client: openai.OpenAI, as_dict: bool):
    messages: list = [USER]
    first = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8)
    message = first.choices[0].message

    messages.append(message.model_dump() if as_dict else message)
    messages.append({"role": "user", "content": "and the list"})
    second = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8)

    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.prompt_tokens > first.usage.total_tokens


@pytest.mark.parametrize(
    "extra",
    [
        dict.fromkeys(("refusal", "annotations", "audio", "tool_calls", "function_call", "name")),
        {"annotations": [], "tool_calls": [], "refusal": "", "name": ""},
        {"reasoning_content": None, "provider_specific_fields": {}, "thinking_blocks": []},
        {"never_heard_of": None},
    ],
)
def test_empty_fields_of_a_message_say_nothing(engine: RunningEngine, extra: dict[str, object]):
    plain = {"role": "assistant", "content": "a short answer"}

    assert usage_of(engine, [USER, {**plain, **extra}, USER]) == usage_of(
        engine, [USER, plain, USER]
    )


def test_an_assistant_that_said_nothing_is_an_empty_turn(engine: RunningEngine):
    empty = usage_of(engine, [USER, {"role": "assistant", "content": ""}])

    assert usage_of(engine, [USER, {"role": "assistant", "content": None}]) == empty
    assert usage_of(engine, [USER, {"role": "assistant"}]) == empty


def test_a_tools_result_is_a_turn_of_its_own(engine: RunningEngine):
    result = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "5"}]}

    role_tokens = [len(engine.loaded.codec.encode(role)) for role in ("tool", "user")]
    as_user = usage_of(engine, [USER, {**USER, "content": "5"}])

    assert usage_of(engine, [USER, result]) == as_user + role_tokens[0] - role_tokens[1]


@pytest.mark.parametrize(
    ("message", "param", "reason"),
    [
        ({"role": "assistant", "content": "a", "refusal": "no"}, "refusal", "carries content"),
        ({"role": "assistant", "audio": {"id": "a"}}, "audio", "carries content that this engine"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "function_call", "carries content"),
        ({"role": "assistant", "annotations": [1]}, "annotations", "leave it out"),
        ({"role": "assistant", "tool_calls": [CALL]}, "tool_calls", "template shows no calls"),
        ({"role": "user", "content": "a", "tool_calls": [CALL]}, "tool_calls", "not to 'user'"),
        ({"role": "user", "content": None}, "content", "text parts for 'user', got None"),
        ({"role": "tool", "content": "5"}, "tool_call_id", "is missing; name the call"),
        ({"role": "user", "content": "a", "mood": "good"}, "mood", "unknown parameter"),
        ({"role": "function", "content": "5", "name": "f"}, "role", "must be 'system'"),
    ],
)
def test_what_the_model_cannot_be_shown_is_refused_by_name(
    engine: RunningEngine, message: dict[str, object], param: str, reason: str
):
    error = refusal(engine.http.post(CHAT, json={"messages": [USER, message]}), 400)

    assert error["param"] == f"messages.1.{param}"
    assert reason in error["message"]
