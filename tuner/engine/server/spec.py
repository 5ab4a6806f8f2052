"""The spec endpoints: capabilities, the live plan, the journal, the load, the captures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic_core import from_json

from collectors.errors import InvalidRecord
from collectors.records import MAX_TREE_NODES, Plan
from tuner.engine.capture import CaptureSettings
from tuner.engine.errors import InvalidPlan, InvalidRequest
from tuner.engine.grammar import GrammarKind
from tuner.engine.server.intake import parsed_body, raw_body
from tuner.engine.server.parts import ENGINE_NAME, EngineParts
from tuner.engine.server.schemas import CaptureBody

MAX_PAGE = 5000
MAX_CAPTURE_PAGE = 1000

After = Annotated[int, Query(ge=0, le=2**63 - 1)]
PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE)]
CapturePageSize = Annotated[int, Query(ge=1, le=MAX_CAPTURE_PAGE)]


def spec_router(parts: EngineParts) -> APIRouter:
    """Return the routes below /spec."""
    router = APIRouter(prefix="/spec")
    _add_reading(router, parts)
    _add_plan(router, parts)
    _add_capture(router, parts)
    return router


def _add_reading(router: APIRouter, parts: EngineParts) -> None:
    @router.get("/capabilities")
    async def capabilities() -> dict[str, object]:
        return _capabilities(parts)

    @router.get("/load")
    async def load() -> dict[str, object]:
        now = parts.loop.load
        return {
            "at": time.time(),
            "boot_id": parts.boot_id,
            "running": now.running,
            "waiting": now.waiting,
            "kv_used_ratio": now.kv_used_ratio,
            "plan_digest": parts.plan.digest,
        }

    @router.get("/steps")
    def steps(
        after: After = 0, limit: PageSize = 1000, boot_id: str | None = None
    ) -> dict[str, object]:
        return parts.journal.page(after, limit, boot_id).to_dict()


def _add_plan(router: APIRouter, parts: EngineParts) -> None:
    @router.get("/plan")
    async def plan() -> dict[str, object]:
        return _plan_answer(parts.plan.current)

    @router.put("/plan")
    async def replace_plan(request: Request, if_digest: str | None = None) -> dict[str, object]:
        wanted = _read_plan(await raw_body(request))
        return _plan_answer(parts.plan.replace(wanted, if_digest))


def _add_capture(router: APIRouter, parts: EngineParts) -> None:
    @router.get("/capture")
    async def capture() -> dict[str, object]:
        return _capture_answer(parts)

    @router.put("/capture")
    async def configure_capture(request: Request) -> dict[str, object]:
        body = await parsed_body(request, CaptureBody)
        settings = CaptureSettings(
            enabled=body.enabled,
            share=body.share,
            per_route=body.per_route,
            private_routes=tuple(body.private_routes),
        )
        parts.plan.reserve_routes(settings.private_routes)
        parts.capture.configure(settings)
        return _capture_answer(parts)

    @router.get("/captures")
    def captures(after: After = 0, limit: CapturePageSize = 100) -> dict[str, object]:
        return parts.capture.page(after, limit).to_dict()


def _capabilities(parts: EngineParts) -> dict[str, object]:
    able = parts.capabilities
    methods = [
        {
            "method": entry.method,
            "max_k": entry.max_k,
            "max_tree_nodes": MAX_TREE_NODES if entry.method.can_branch else 0,
            "can_adapt": entry.method.can_adapt,
            "drafter": entry.drafter,
            "drafter_hash": entry.drafter_hash,
        }
        for entry in able.methods
    ]
    routes = parts.plan.routes
    return {
        "engine": ENGINE_NAME,
        "version": parts.version,
        "boot_id": parts.boot_id,
        "model": able.model,
        "methods": methods,
        "rules": list(able.rules),
        "lossy_rules": [rule for rule in able.rules if not rule.is_lossless],
        "grammars": list(GrammarKind),
        "routes": None if routes is None else list(routes),
        "max_rows": able.max_rows,
        "max_context_tokens": able.max_context_tokens,
        "queue_limit": able.queue_limit,
        "vocab_size": able.vocab_size,
        "pinned": parts.pinned.to_dict(),
    }


def _plan_answer(plan: Plan) -> dict[str, object]:
    return {**plan.to_dict(), "digest": plan.digest}


def _read_plan(raw: bytes) -> Plan:
    try:
        data = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    if not isinstance(data, Mapping):
        raise InvalidPlan(f"a plan must be a JSON object, got {type(data).__name__}")
    try:
        return Plan.from_dict(data)
    except InvalidRecord as error:
        raise InvalidPlan(str(error)) from error


def _capture_answer(parts: EngineParts) -> dict[str, object]:
    settings = parts.capture.settings
    return {
        "enabled": settings.enabled,
        "share": settings.share,
        "per_route": settings.per_route,
        "private_routes": list(settings.private_routes),
        "held": parts.capture.num_held,
    }
