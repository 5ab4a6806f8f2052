from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.tuner.engine.server.running import MODEL, RunningEngine, running_engine, tiny_settings
from tests.tuner.engine.server.test_errors import CHAT, refusal
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.server.tools import CallReader

TEMPLATE = (
    "{# Calls look like <tool_call>{...}</tool_call>. #}"
    "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.name }}:"
    "{% for key in call.function.arguments %}{{ key }}{% endfor %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES = [{"role": "user", "content": "how warm is it"}]
WARMTH = {"name": "warmth", "parameters": {"type": "object", "properties": {"at": {}}}}
TOOLS = [{"type": "function", "function": WARMTH}]
ONE_CALL = r'<tool_call>\{"name": "warmth", "arguments": \{"at": "sea"\}\}</tool_call>'
TWO_CALLS = rf"well {ONE_CALL}\n{ONE_CALL}"


@pytest.fixture(scope="module")
def tooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    model = write_tiny_model(tmp_path_factory.mktemp("tooled") / "tiny")
    (model / "chat_template.jinja").write_text(TEMPLATE)
    with running_engine(tiny_settings(model)) as running:
        yield running


@pytest.fixture
def sdk(tooled: RunningEngine) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tooled.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def answering(regex: str) -> dict[str, object]:
    """Hold a random model to an answer."""
    return {"structured_outputs": {"regex": regex}}


def test_a_call_is_read_by_the_official_client_and_its_result_goes_back(sdk: openai.OpenAI):
    asked = sdk.chat.completions.create(
        model=MODEL, messages=MESSAGES, tools=TOOLS, extra_body=answering(ONE_CALL)
    )
    choice = asked.choices[0]
    [call] = choice.message.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": "21"}

    told = sdk.chat.completions.create(
        model=MODEL, messages=[*MESSAGES, choice.message, result], tools=TOOLS, max_tokens=4
    )

    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert (call.function.name, json.loads(call.function.arguments)) == ("warmth", {"at": "sea"})
    assert told.usage.prompt_tokens > asked.usage.prompt_tokens


def test_calls_beside_text_are_told_apart_in_streams_too(sdk: openai.OpenAI):
    ask = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS, "extra_body": answering(TWO_CALLS)}
    plain = sdk.chat.completions.create(**ask).choices[0]

    text, calls, reasons = "", {}, []
    for chunk in sdk.chat.completions.create(**ask, stream=True):
        [choice] = chunk.choices
        text += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            calls[call.index] = (call.function.name, call.function.arguments)
        reasons.append(choice.finish_reason)

    assert plain.message.content == text == "well"
    assert [(call.function.name, call.function.arguments) for call in plain.message.tool_calls] == [
        calls[0],
        calls[1],
    ]
    assert reasons[-1] == plain.finish_reason == "tool_calls"
    assert set(reasons[:-1]) == {None}


def test_tools_that_may_not_be_called_are_not_shown(tooled: RunningEngine, engine: RunningEngine):
    def prompt_tokens(running: RunningEngine, **extra: object) -> int:
        body = {"messages": MESSAGES, "max_tokens": 1, **extra}
        return (
            running.http.post(CHAT, json=body).raise_for_status().json()["usage"]["prompt_tokens"]
        )

    plain = prompt_tokens(tooled)

    assert prompt_tokens(tooled, tools=TOOLS, tool_choice="none") == plain
    assert prompt_tokens(engine, tools=TOOLS, tool_choice="none") == plain
    assert prompt_tokens(tooled, tools=TOOLS) > plain


@pytest.mark.parametrize(
    ("extra", "param", "reason"),
    [
        ({"tool_choice": "required"}, "tool_choice", "'required' cannot be enforced; send 'auto'"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "cannot be enforced"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls", "false cannot be enforced"),
    ],
)
def test_a_choice_that_cannot_be_enforced_is_refused(
    tooled: RunningEngine, extra: dict[str, object], param: str, reason: str
):
    body = {"messages": MESSAGES, "tools": TOOLS, **extra}

    error = refusal(tooled.http.post(CHAT, json=body), 400)

    assert error["param"] == param
    assert reason in error["message"]


def test_a_model_whose_template_shows_no_tools_says_so(engine: RunningEngine):
    error = refusal(engine.http.post(CHAT, json={"messages": MESSAGES, "tools": TOOLS}), 400)

    assert error["message"] == (
        "tools: the model's chat template shows no tools; leave them out, "
        "or send tool_choice 'none'"
    )


@pytest.mark.parametrize(
    ("answer", "content", "num_calls"),
    [
        ("no call at all", "no call at all", 0),
        ("a <tool_call> that never ends", "a <tool_call> that never ends", 0),
        ("<tool_call>not json</tool_call> b", "<tool_call>not json</tool_call> b", 0),
        ('<tool_call>{"name": 5}</tool_call>', '<tool_call>{"name": 5}</tool_call>', 0),
        ('\n<tool_call>\n{"name": "f"}\n</tool_call>\n', "", 1),
        ('a\n<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call> b', "a b", 1),
        ("a < b <tool", "a < b <tool", 0),
    ],
)
def test_only_whole_calls_leave_the_text_however_it_is_cut(
    answer: str, content: str, num_calls: int
):
    for size in (1, 3, len(answer)):
        reader, text = CallReader(), ""
        for first in range(0, len(answer), size):
            piece, _ = reader.push(
                answer[first : first + size], is_last=first + size >= len(answer)
            )
            text += piece
        assert (text, reader.num_calls) == (content, num_calls), size


def test_a_model_directory_without_a_template_says_so_before_its_tools(tmp_path: Path):
    model = write_tiny_model(tmp_path / "tiny")
    (model / "chat_template.jinja").unlink()
    with running_engine(tiny_settings(model)) as bare:
        error = refusal(bare.http.post(CHAT, json={"messages": MESSAGES}), 400)

    assert "no chat template" in error["message"]
