"""Bodies that clients may send, strictly typed; `read_body` turns bytes into one of them.

A value of the wrong type is refused, never converted, and the message names the field.
"""

from __future__ import annotations

from typing import Annotated, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from tuner.engine.errors import InvalidRequest
from tuner.engine.server.formats import ResponseFormat, StructuredOutputs
from tuner.engine.server.messages import Message, require_readable
from tuner.engine.server.parameters import require_servable
from tuner.engine.server.strict import Strict
from tuner.engine.server.tools import Tool, ToolChoice

MAX_LOGPROBS = 20
MAX_STOPS = 16
MAX_CANDIDATES = 128
_INT64 = 2**63

Body = TypeVar("Body", bound=BaseModel)


def _stops(value: object) -> object:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise ValueError("must be a non-empty string or a list of non-empty strings")
    return stops


def _prompts(value: object) -> object:
    """Return a list of prompts, each a text or token ids, from any of OpenAI's four forms."""
    if isinstance(value, list) and value and all(_is_prompt(prompt) for prompt in value):
        return value
    if _is_prompt(value):
        return [value]
    raise ValueError("must be a string or a list of token ids, or a list of either")


def _is_prompt(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(type(token) is int for token in value)
    )


class StreamOptions(Strict):
    """What a stream carries besides deltas."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class GenerationBody(BaseModel):
    """What both generating endpoints take.

    ``model_extra`` holds what OpenAI defines and this engine does not, already checked to be
    without influence on the output.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)

    model: str | None = Field(default=None, max_length=256)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_CANDIDATES)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: dict[str, float] | None = None
    min_tokens: int | None = Field(default=None, ge=0)
    stop: Annotated[list[str], BeforeValidator(_stops), Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    seed: int | None = Field(default=None, ge=-_INT64, lt=_INT64)
    return_token_ids: bool | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    speculation: dict[str, object] | None = None

    @field_validator("logit_bias")
    @classmethod
    def _bias_in_range(cls, bias: dict[str, float] | None) -> dict[str, float] | None:
        for token, value in (bias or {}).items():
            if not token.isascii() or not token.isdigit():
                raise ValueError(f"key {token!r} is not a token id")
            if not -100 <= value <= 100:
                raise ValueError(f"bias of token {token} must be -100 to 100, got {value}")
        return bias

    @model_validator(mode="after")
    def _stream_options_belong_to_streams(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest(
                "stream_options belongs to streams; set stream to true", param="stream_options"
            )
        require_servable(self.model_extra or {})
        return self


class CompletionBody(GenerationBody):
    """Body of POST /v1/completions."""

    prompt: Annotated[list[str | list[int]], BeforeValidator(_prompts)]
    max_tokens: int | None = Field(default=None, ge=0)
    best_of: int | None = Field(default=None, ge=1, le=MAX_CANDIDATES)
    echo: bool | None = None
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives to report with each token; None for no logprobs."""
        return self.logprobs

    @property
    def num_candidates(self) -> int:
        """Answers computed for each prompt."""
        return self.best_of or self.n or 1

    @model_validator(mode="after")
    def _best_of_covers_n(self) -> Self:
        choices = self.n or 1
        if self.num_candidates < choices:
            raise InvalidRequest(
                f"best_of {self.best_of} is below n {choices}; raise it", param="best_of"
            )
        if self.num_candidates > choices and self.stream:
            raise InvalidRequest(
                "best_of above n cannot be streamed, for the best is known in the end; "
                "set stream to false",
                param="best_of",
            )
        return self


class ChatBody(GenerationBody):
    """Body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives to report with each token; None for no logprobs."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def num_candidates(self) -> int:
        """Answers computed for each prompt."""
        return self.n or 1

    @model_validator(mode="after")
    def _messages_can_be_read(self) -> Self:
        require_readable(self.messages)
        return self

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise InvalidRequest(
                "top_logprobs needs logprobs; set logprobs to true", param="top_logprobs"
            )
        return self


class CaptureBody(Strict):
    """Body of PUT /spec/capture."""

    enabled: bool
    share: float = 1.0
    per_route: int = 64
    private_routes: list[str] = Field(default_factory=list)


def read_body(kind: type[Body], raw: bytes) -> Body:
    """Read a JSON body.

    Raises:
        InvalidRequest: malformed JSON, or a field that is missing, unknown or wrong.
    """
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        raise _refusal(error) from error


def _refusal(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return InvalidRequest(f"the body is not JSON: {first['ctx']['error']}")
    path = ".".join(str(part) for part in first["loc"])[:100]
    if first["type"] == "missing":
        return InvalidRequest(f"{path} is missing", param=path)
    if first["type"] == "extra_forbidden":
        return InvalidRequest(f"unknown parameter {path!r}; remove it", param=path)
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "must")
    shown = "" if first["type"] == "value_error" else f", got {_short(first['input'])}"
    return InvalidRequest(f"{path or 'the body'} {message}{shown}", param=path or None)


def _short(value: object) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= 60 else shown[:57] + "..."
