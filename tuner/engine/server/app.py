"""The HTTP application of the engine."""

from __future__ import annotations

import time

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from tuner.engine.errors import EngineUnavailable, UnknownModel
from tuner.engine.server.candidates import RowRequests
from tuner.engine.server.chat import ChatShape
from tuner.engine.server.completions import CompletionShape, Echo
from tuner.engine.server.errors import error_body, install_error_handlers
from tuner.engine.server.gate import (
    HEALTH_PATH,
    LOOPBACK_NAMES,
    HeadAsGet,
    HostGuard,
    KeyCheck,
    RequestIds,
)
from tuner.engine.server.intake import chat_rows, completion_rows, parsed_body
from tuner.engine.server.parts import ENGINE_NAME, EngineParts
from tuner.engine.server.schemas import ChatBody, CompletionBody
from tuner.engine.server.spec import spec_router
from tuner.engine.server.streaming import respond
from tuner.engine.server.tools import usable_tools


def create_app(parts: EngineParts) -> ASGIApp:
    """Return the application; the engine loop must be started by the caller."""
    app = FastAPI(title="Spectuner engine", docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    install_error_handlers(app)
    app.include_router(_status_router(parts))
    app.include_router(_model_router(parts))
    app.include_router(_generation_router(parts))
    app.include_router(spec_router(parts))
    answering = HeadAsGet(app)
    if parts.api_key is None:
        return RequestIds(HostGuard(answering, (*LOOPBACK_NAMES, *parts.allowed_hosts)))
    return RequestIds(KeyCheck(answering, parts.api_key))


def _status_router(parts: EngineParts) -> APIRouter:
    router = APIRouter()

    @router.get(HEALTH_PATH)
    async def health() -> Response:
        if parts.loop.refusal is not None:
            return JSONResponse(error_body(EngineUnavailable(parts.loop.refusal)), status_code=503)
        load = parts.loop.load
        state = {"running": load.running, "waiting": load.waiting}
        return JSONResponse({"status": "ok", "boot_id": parts.boot_id, **state})

    @router.get("/metrics")
    def metrics() -> Response:
        return Response(parts.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def _model_router(parts: EngineParts) -> APIRouter:
    router = APIRouter(prefix="/v1/models")
    card: dict[str, object] = {
        "id": parts.capabilities.model,
        "object": "model",
        "created": parts.started_at,
        "owned_by": ENGINE_NAME,
        "max_model_len": parts.capabilities.max_context_tokens,
    }

    @router.get("")
    async def models() -> dict[str, object]:
        return {"object": "list", "data": [card]}

    @router.get("/{model:path}")
    async def model(model: str) -> dict[str, object]:
        if model != parts.capabilities.model:
            known = parts.capabilities.model
            raise UnknownModel(f"model {model!r} is not served here; use {known!r}", param="model")
        return card

    return router


def _generation_router(parts: EngineParts) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.post("/completions")
    async def completions(http: Request) -> Response:
        body = await parsed_body(http, CompletionBody)
        rows = await completion_rows(http, body, parts)
        shape = CompletionShape(
            request_id=http.state.request_id,
            created=int(time.time()),
            model=parts.capabilities.model,
            fingerprint=parts.fingerprint,
            prompts=parts.prompts,
            with_token_ids=bool(body.return_token_ids),
            echoes=_echoes(body, rows, parts) if body.echo else (),
            with_logprobs=rows.with_logprobs,
        )
        return await respond(http, rows, body, shape, parts)

    @router.post("/chat/completions")
    async def chat_completions(http: Request) -> Response:
        body = await parsed_body(http, ChatBody)
        tools = usable_tools(
            body.tools or (),
            body.tool_choice,
            body.parallel_tool_calls,
            parts.prompts.template_tools,
        )
        rows = await chat_rows(http, body, tools, parts)
        shape = ChatShape(
            request_id=http.state.request_id,
            created=int(time.time()),
            model=parts.capabilities.model,
            fingerprint=parts.fingerprint,
            prompts=parts.prompts,
            with_token_ids=bool(body.return_token_ids),
            reads_calls=bool(tools),
        )
        return await respond(http, rows, body, shape, parts)

    return router


def _echoes(body: CompletionBody, rows: RowRequests, parts: EngineParts) -> tuple[Echo, ...]:
    """Return the prompt of each choice."""
    ids = [row.prompt_ids for row in rows.rows[:: rows.num_candidates]]
    prompts = [
        Echo(
            text=sent if isinstance(sent, str) else parts.prompts.text_of(sent),
            token_ids=prompt_ids,
        )
        for sent, prompt_ids in zip(body.prompt, ids, strict=True)
    ]
    return tuple(prompt for prompt in prompts for _ in range(rows.num_choices))
