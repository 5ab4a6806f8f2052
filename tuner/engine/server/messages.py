"""The messages of a chat as clients send them, answers of this engine sent back included.

SDKs send every field of an answer back, most of them null or empty. Those say nothing and are
taken; a field that carries what the model cannot be shown is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from tuner.engine.errors import InvalidRequest
from tuner.engine.server.tools import ToolCall

_MAY_BE_EMPTY = frozenset(
    {
        "annotations",
        "audio",
        "function_call",
        "images",
        "provider_specific_fields",
        "reasoning",
        "reasoning_content",
        "refusal",
        "thinking_blocks",
    }
)
"""Fields of answers, here or elsewhere, that SDKs send back."""


def _content(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("must be a string or a list of text parts")
    return "".join(_part_text(part) for part in value)


def _part_text(part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "text":
        raise ValueError(f"part of type {kind!r} cannot be read; only text parts can")
    text = part.get("text") if isinstance(part, dict) else None
    if not isinstance(text, str):
        raise ValueError("a text part needs a string as its text")
    return text


class Message(BaseModel):
    """One turn of a chat; `require_readable` checks what the types cannot say."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str | None, BeforeValidator(_content)] = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    def for_template(self) -> dict[str, object]:
        """Return the message as chat templates read it."""
        message: dict[str, object] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": self.content or "",
        }
        if self.name:
            message["name"] = self.name
        if self.tool_calls:
            message["tool_calls"] = [call.for_template() for call in self.tool_calls]
        if self.tool_call_id:
            message["tool_call_id"] = self.tool_call_id
        return message


def require_readable(messages: Sequence[Message]) -> None:
    """Check every message.

    Raises:
        InvalidRequest: a message lacks its content, or carries something that cannot be read.
    """
    for number, message in enumerate(messages):
        place = f"messages.{number}"
        _require_content(message, f"{place}.content")
        if message.tool_calls and message.role != "assistant":
            _refuse(f"{place}.tool_calls", f"belongs to the assistant, not to {message.role!r}")
        if message.role == "tool" and not message.tool_call_id:
            _refuse(f"{place}.tool_call_id", "is missing; name the call that this answers")
        for name, value in (message.model_extra or {}).items():
            _require_empty(f"{place}.{name[:60]}", name, value)


def _require_content(message: Message, place: str) -> None:
    if message.content is not None or message.role == "assistant":
        return
    if "content" not in message.model_fields_set:
        _refuse(place, "is missing")
    _refuse(place, f"must be a string or a list of text parts for {message.role!r}, got None")


def _require_empty(place: str, name: str, value: object) -> None:
    if value is None:
        return
    if name not in _MAY_BE_EMPTY:
        raise InvalidRequest(f"unknown parameter {place!r}; remove it", param=place)
    if value not in ("", [], {}):
        _refuse(place, "carries content that this engine cannot show the model; leave it out")


def _refuse(place: str, reason: str) -> None:
    raise InvalidRequest(f"{place} {reason}", param=place)
