"""Tools that a model may call: what clients send, and the calls read out of its answers.

Calls are read in the form that Hermes' and Qwen's templates teach:
``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import Field

from tuner.engine.errors import InvalidRequest
from tuner.engine.server.strict import Strict

CALL_START, CALL_END = "<tool_call>", "</tool_call>"

ToolChoice: TypeAlias = Literal["none", "auto", "required"] | dict[str, object]


class CalledFunction(Strict):
    """Which function a call names, and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(Strict):
    """A call of the assistant, as an answer carries it."""

    id: str = ""
    index: int | None = None
    type: Literal["function"] = "function"
    function: CalledFunction

    def for_template(self) -> dict[str, object]:
        """Return the call as chat templates read it: arguments as an object where they are one."""
        arguments: object = self.function.arguments
        try:
            arguments = json.loads(self.function.arguments)
        except ValueError:
            arguments = self.function.arguments
        function = {"name": self.function.name, "arguments": arguments}
        return {"id": self.id, "type": self.type, "function": function}


class ToolFunction(Strict):
    """A function that the model may call."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class Tool(Strict):
    """A tool of a request."""

    type: Literal["function"]
    function: ToolFunction

    def for_template(self) -> dict[str, object]:
        """Return the tool as chat templates read it."""
        function = self.function.model_dump(exclude_none=True, exclude={"strict"})
        return {"type": self.type, "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateTools:
    """What a chat template knows of tools.

    Attributes:
        shows_tools: it lays the request's tools before the model.
        shows_calls: it shows the calls of earlier answers.
        teaches_calls: it teaches the form of calls that this engine reads.
    """

    shows_tools: bool
    shows_calls: bool
    teaches_calls: bool


def usable_tools(
    tools: Sequence[Tool], choice: ToolChoice | None, is_parallel: bool | None, able: TemplateTools
) -> tuple[Tool, ...]:
    """Return the tools that the model is shown: none where it may call none.

    Raises:
        InvalidRequest: the model's template, or this engine, cannot do what is asked.
    """
    if not tools or choice == "none":
        return ()
    if not able.shows_tools:
        _refuse("tools", "the model's chat template shows no tools; leave them out")
    if not able.teaches_calls:
        _refuse("tools", f"the model's chat template does not call them by {CALL_START}")
    if choice not in (None, "auto"):
        _refuse("tool_choice", f"{choice!r} cannot be enforced; send 'auto' or 'none'")
    if is_parallel is False:
        _refuse("parallel_tool_calls", "false cannot be enforced; leave it out")
    return tuple(tools)


def _refuse(param: str, reason: str) -> None:
    fix = "" if param != "tools" else ", or send tool_choice 'none'"
    raise InvalidRequest(f"{param}: {reason}{fix}", param=param)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCall:
    """A call that an answer makes.

    Attributes:
        call_id: made up here; the client sends it back beside the result.
        name: of the function.
        arguments: JSON text.
    """

    call_id: str
    name: str
    arguments: str

    def to_dict(self) -> dict[str, object]:
        """Return OpenAI's form."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.call_id, "type": "function", "function": function}


class CallReader:
    """Finds calls in an answer as it comes; what is no whole call stays text."""

    def __init__(self) -> None:
        self._held = ""
        self.num_calls = 0

    def push(self, text: str, *, is_last: bool) -> tuple[str, list[ParsedCall]]:
        """Take new text; return what is content, and the calls that it completed.

        White space around a call is left out once there was one.
        """
        self._held += text
        content, calls = "", []
        while (start := self._held.find(CALL_START)) >= 0:
            end = self._held.find(CALL_END, start)
            if end < 0:
                break
            call = _parsed(self._held[start + len(CALL_START) : end])
            before = self._held[: start if call else end + len(CALL_END)]
            self._held = self._held[end + len(CALL_END) :]
            content += before.rstrip() if call else before
            calls += [call] if call else []
        self.num_calls += len(calls)
        return content + self._released(is_last), calls

    def _released(self, is_last: bool) -> str:
        keep = 0 if is_last else self._num_undecided()
        ready = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return "" if self.num_calls and not ready.strip() else ready

    def _num_undecided(self) -> int:
        """Return how much of the end may still become a call, white space before it included."""
        start = self._held.find(CALL_START)
        if start < 0:
            lengths = range(min(len(CALL_START) - 1, len(self._held)), 0, -1)
            tails = (length for length in lengths if self._held.endswith(CALL_START[:length]))
            start = len(self._held) - next(tails, 0)
        return len(self._held) - len(self._held[:start].rstrip())


def _parsed(text: str) -> ParsedCall | None:
    try:
        call = json.loads(text)
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    return ParsedCall(
        call_id=f"call_{uuid.uuid4().hex[:24]}",
        name=call["name"],
        arguments=json.dumps(arguments, ensure_ascii=False),
    )
