"""From an HTTP request to an `EngineRequest`: body, headers, sampling, Setting, room."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel

from collectors.errors import InvalidRecord
from collectors.records import Setting
from tuner.engine.capabilities import Capabilities
from tuner.engine.errors import BodyTooLarge, ContextTooLong, InvalidRequest, UnknownModel
from tuner.engine.grammar import Grammar
from tuner.engine.request import EngineRequest, SamplingParams
from tuner.engine.server.candidates import RowRequests, row_requests
from tuner.engine.server.formats import wanted_grammar
from tuner.engine.server.parts import EngineParts
from tuner.engine.server.schemas import ChatBody, CompletionBody, GenerationBody, read_body
from tuner.engine.server.tools import TemplateTools, Tool
from tuner.engine.verification.rows import BAN_BIAS

MAX_BODY_BYTES = 8 * 2**20
OPENAI_COMPLETION_TOKENS = 16

ROUTE_HEADER = "x-spectuner-route"
SHADOW_HEADER = "x-spectuner-shadow"

Body = TypeVar("Body", bound=BaseModel)


async def raw_body(request: Request) -> bytes:
    """Read the whole body.

    Raises:
        BodyTooLarge: it is longer than `MAX_BODY_BYTES`.
    """
    chunks: list[bytes] = []
    num_bytes = 0
    async for chunk in request.stream():
        num_bytes += len(chunk)
        if num_bytes > MAX_BODY_BYTES:
            raise BodyTooLarge(f"the body is longer than {MAX_BODY_BYTES} bytes; send less")
        chunks.append(chunk)
    return b"".join(chunks)


async def parsed_body(request: Request, kind: type[Body]) -> Body:
    """Read and check a JSON body."""
    return read_body(kind, await raw_body(request))


async def completion_rows(http: Request, body: CompletionBody, parts: EngineParts) -> RowRequests:
    """Build the engine's rows for POST /v1/completions.

    Raises:
        InvalidRequest: a value that cannot be served.
        UnknownModel: another model is served.
    """
    encoded = [await _prompt_ids(prompt, parts) for prompt in body.prompt]
    samplings = [_completion_sampling(body, ids, parts.capabilities) for ids in encoded]
    first = await _engine_request(http, body, encoded[0], samplings[0], parts)
    grammar = first.sampling.grammar
    prompts = [
        replace(
            first,
            prompt_ids=ids,
            sampling=replace(sampling, grammar=grammar),
            prompt_logprobs=body.num_logprobs if body.echo else None,
        )
        for ids, sampling in zip(encoded, samplings, strict=True)
    ]
    return _rows(body, prompts, parts)


async def _prompt_ids(prompt: str | list[int], parts: EngineParts) -> tuple[int, ...]:
    if isinstance(prompt, str):
        prompt_ids = await asyncio.to_thread(parts.prompts.encode, prompt)
    else:
        _require_in_vocabulary("prompt", prompt, parts.capabilities)
        prompt_ids = tuple(prompt)
    if not prompt_ids:
        raise InvalidRequest("prompt is empty; send at least one token", param="prompt")
    return prompt_ids


def _completion_sampling(
    body: CompletionBody, prompt_ids: tuple[int, ...], capabilities: Capabilities
) -> SamplingParams:
    asked = body.max_tokens
    if asked == 0:
        _require_room(len(prompt_ids), 0, capabilities, "max_tokens")
        return _sampling(body, 0, body.num_logprobs, capabilities)
    room = _room(prompt_ids, capabilities, "prompt")
    max_tokens = min(OPENAI_COMPLETION_TOKENS, room) if asked is None else asked
    _require_room(len(prompt_ids), max_tokens, capabilities, "max_tokens")
    return _sampling(body, max_tokens, body.num_logprobs, capabilities)


def _rows(
    body: CompletionBody | ChatBody, prompts: list[EngineRequest], parts: EngineParts
) -> RowRequests:
    return row_requests(
        prompts,
        num_choices=body.n or 1,
        num_candidates=body.num_candidates,
        max_rows=max(1, parts.capabilities.queue_limit),
    )


async def chat_rows(
    http: Request, body: ChatBody, tools: Sequence[Tool], parts: EngineParts
) -> RowRequests:
    """Build the engine's rows for POST /v1/chat/completions.

    Args:
        http: the request.
        body: what it asks for.
        tools: those that the model is shown.
        parts: the engine.

    Raises:
        InvalidRequest: a value that cannot be served.
        UnknownModel: another model is served.
    """
    _require_shown_calls(body, parts.prompts.template_tools)
    messages = [message.for_template() for message in body.messages]
    shown = [tool.for_template() for tool in tools]
    prompt_ids = await asyncio.to_thread(parts.prompts.encode_chat, messages, shown)
    if not prompt_ids:
        raise InvalidRequest("messages make an empty prompt; add content", param="messages")
    room = _room(prompt_ids, parts.capabilities, "messages")
    param = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    asked = body.max_completion_tokens or body.max_tokens
    max_tokens = room if asked is None else asked
    _require_room(len(prompt_ids), max_tokens, parts.capabilities, param)
    sampling = _sampling(body, max_tokens, body.num_logprobs, parts.capabilities)
    return _rows(body, [await _engine_request(http, body, prompt_ids, sampling, parts)], parts)


def _require_shown_calls(body: ChatBody, able: TemplateTools) -> None:
    """Refuse calls of earlier answers that the template would leave out in silence."""
    for number, message in enumerate(body.messages):
        if message.tool_calls and not able.shows_calls:
            raise InvalidRequest(
                f"messages.{number}.tool_calls: the model's chat template shows no calls; "
                "say them in the content",
                param=f"messages.{number}.tool_calls",
            )


async def _engine_request(
    http: Request,
    body: GenerationBody,
    prompt_ids: tuple[int, ...],
    sampling: SamplingParams,
    parts: EngineParts,
) -> EngineRequest:
    if body.model not in (None, parts.capabilities.model):
        raise UnknownModel(
            f"model {body.model!r} is not served here; use {parts.capabilities.model!r}",
            param="model",
        )
    grammar = await _grammar(body, parts)
    is_shadow = _is_shadow(http.headers.get(SHADOW_HEADER))
    return EngineRequest(
        request_id=http.state.request_id,
        prompt_ids=prompt_ids,
        sampling=sampling if grammar is None else replace(sampling, grammar=grammar),
        route=parts.plan.route_of(http.headers.get(ROUTE_HEADER), is_shadow=is_shadow),
        is_shadow=is_shadow,
        setting=_own_setting(body, parts.capabilities),
        arrived_s=time.monotonic(),
    )


async def _grammar(body: GenerationBody, parts: EngineParts) -> Grammar | None:
    wanted = wanted_grammar(body.response_format, body.structured_outputs)
    if wanted is None:
        return None
    param, source = wanted
    return await asyncio.wrap_future(parts.grammars.compile(source, param=param))


def _is_shadow(header: str | None) -> bool:
    if header not in (None, "0", "1"):
        raise InvalidRequest(f"header {SHADOW_HEADER} must be 0 or 1, got {header!r}")
    return header == "1"


def _own_setting(body: GenerationBody, capabilities: Capabilities) -> Setting | None:
    if body.speculation is None:
        return None
    try:
        setting = Setting.from_dict(body.speculation)
    except InvalidRecord as error:
        raise InvalidRequest(f"speculation: {error}", param="speculation") from error
    reason = capabilities.refusal_reason(setting)
    if reason is not None:
        raise InvalidRequest(f"speculation: {reason}", param="speculation")
    return setting


def _sampling(
    body: GenerationBody, max_tokens: int, num_logprobs: int | None, capabilities: Capabilities
) -> SamplingParams:
    min_tokens = body.min_tokens or 0
    if min_tokens > max_tokens:
        raise InvalidRequest(
            f"min_tokens {min_tokens} is above max_tokens {max_tokens}; lower it",
            param="min_tokens",
        )
    bias = {int(token): value for token, value in (body.logit_bias or {}).items()}
    stop_ids = body.stop_token_ids or []
    _require_in_vocabulary("logit_bias", bias, capabilities)
    _require_a_token(bias, capabilities)
    _require_in_vocabulary("stop_token_ids", stop_ids, capabilities)
    return SamplingParams(
        temperature=_or(body.temperature, 1.0),
        top_k=max(0, min(_or(body.top_k, 0), capabilities.vocab_size)),
        top_p=_or(body.top_p, 1.0),
        min_p=_or(body.min_p, 0.0),
        repetition_penalty=_or(body.repetition_penalty, 1.0),
        presence_penalty=_or(body.presence_penalty, 0.0),
        frequency_penalty=_or(body.frequency_penalty, 0.0),
        logit_bias=bias,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
        stop=tuple(body.stop or ()),
        stop_token_ids=tuple(stop_ids),
        ignore_eos=bool(body.ignore_eos),
        seed=body.seed,
        logprobs=num_logprobs,
    )


Number = TypeVar("Number", int, float)


def _or(value: Number | None, default: Number) -> Number:
    return default if value is None else value


def _require_in_vocabulary(
    param: str, token_ids: list[int] | dict[int, float], capabilities: Capabilities
) -> None:
    for token in token_ids:
        if not 0 <= token < capabilities.vocab_size:
            raise InvalidRequest(
                f"{param}: token id {token} is not in 0 to {capabilities.vocab_size - 1}",
                param=param,
            )


def _require_a_token(bias: dict[int, float], capabilities: Capabilities) -> None:
    num_banned = sum(value <= BAN_BIAS for value in bias.values())
    if num_banned >= capabilities.vocab_size:
        raise InvalidRequest(
            f"logit_bias: a bias of {BAN_BIAS:g} bans each of the {capabilities.vocab_size} "
            "tokens; leave at least one",
            param="logit_bias",
        )


def _room(prompt_ids: tuple[int, ...], capabilities: Capabilities, param: str) -> int:
    room = capabilities.max_context_tokens - len(prompt_ids)
    if room < 1:
        raise ContextTooLong(
            f"the prompt has {len(prompt_ids)} tokens and the context holds "
            f"{capabilities.max_context_tokens}, answer included; shorten the prompt",
            param=param,
        )
    return room


def _require_room(
    prompt_tokens: int, max_tokens: int, capabilities: Capabilities, param: str
) -> None:
    if prompt_tokens + max_tokens > capabilities.max_context_tokens:
        raise ContextTooLong(
            f"{prompt_tokens} prompt tokens and {param} {max_tokens} exceed the context of "
            f"{capabilities.max_context_tokens} tokens; lower {param} or shorten the prompt",
            param=param,
        )
