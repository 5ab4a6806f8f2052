"""The JSON API under ``/api/v1``, with bearer tokens; values as ``tuner.api.json_form`` says.

Reading needs the role viewer, deciding operator, tokens admin. Errors are
``{"error": {"message", "type", "param", "code"}}``, the message one line.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse

from dashboards.access import Actor, Role
from dashboards.console import DEFAULT_PERIOD_S, Console
from dashboards.desk import Number
from dashboards.pages.recommendations import act_named
from dashboards.pages.tokens import role_named
from tuner.api.auth import TokenDoorkeeper
from tuner.api.json_form import json_form

Gate = Callable[[Request], Actor]


class DecisionBody(BaseModel):
    """Why somebody decides, empty only to approve; ``revision`` is the one that was looked at."""

    model_config = ConfigDict(extra="forbid")
    reason: str = ""
    revision: int | None = None


class SetBody(BaseModel):
    """Recommendations to approve as one, and why."""

    model_config = ConfigDict(extra="forbid")
    numbers: list[int]
    reason: str = ""


class TokenBody(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid")
    name: str
    role: str


def api_router(console: Console, doorkeeper: TokenDoorkeeper) -> APIRouter:
    """Return all routes of the JSON API."""
    router = APIRouter(prefix="/api/v1")
    viewer = [Depends(gate(doorkeeper, Role.VIEWER))]
    router.include_router(_traffic_router(console), dependencies=viewer)
    router.include_router(_proof_router(console), dependencies=viewer)
    router.include_router(_decision_router(console, doorkeeper))
    router.include_router(_alarm_router(console, doorkeeper))
    router.include_router(_token_router(console, doorkeeper))
    return router


def gate(doorkeeper: TokenDoorkeeper, needed: Role) -> Gate:
    """Return a dependency that lets callers with a role through."""

    def check(request: Request) -> Actor:
        return doorkeeper.bearer(request, needed)

    return check


def _traffic_router(console: Console) -> APIRouter:
    router = APIRouter(tags=["traffic"])

    @router.get("/overview")
    def overview(period: int = DEFAULT_PERIOD_S) -> JSONResponse:
        """Return ``Overview``: engines, cells by route and load level, engine totals by load."""
        return _answer(console.overview(period))

    @router.get("/routes/{name}")
    def route(name: str, period: int = DEFAULT_PERIOD_S) -> JSONResponse:
        """Return ``RouteView``: acceptance by position, Settings, history, costs."""
        return _answer(console.route(name, period))

    @router.get("/alarms")
    def alarms() -> JSONResponse:
        """Return ``{"alarms": [AlarmLine]}``, newest first, those that are over too."""
        return _answer({"alarms": console.alarms()})

    @router.get("/jobs")
    def jobs(job: str | None = None) -> JSONResponse:
        """Return ``JobsView``: timetable and newest runs, of one job or some of each."""
        return _answer(console.jobs(job))

    @router.get("/audit")
    def audit() -> JSONResponse:
        """Return ``{"audit": [AuditLine]}``, newest first."""
        return _answer({"audit": console.audit()})

    return router


def _proof_router(console: Console) -> APIRouter:
    router = APIRouter(tags=["proof"])

    @router.get("/replays")
    def replays() -> JSONResponse:
        """Return ``{"replays": [ReplayLine]}``, newest first."""
        return _answer({"replays": console.replays()})

    @router.get("/replays/{number}")
    def replay(number: Number) -> JSONResponse:
        """Return ``ReplayView`` with its pairs."""
        return _answer(console.replay(number))

    @router.get("/divergences")
    def divergences() -> JSONResponse:
        """Return ``{"divergences": [DivergenceLine]}``, newest first."""
        return _answer({"divergences": console.divergences()})

    @router.get("/pinned/{digest}")
    def pinned(digest: str) -> JSONResponse:
        """Return ``{"digest", "config"}``, the configuration in its wire form."""
        return _answer({"digest": digest, "config": console.pinned(digest).to_dict()})

    @router.get("/divergences/{number}")
    def divergence(number: Number) -> JSONResponse:
        """Return ``DivergenceView`` with its splits."""
        return _answer(console.divergence(number))

    return router


def _decision_router(console: Console, doorkeeper: TokenDoorkeeper) -> APIRouter:
    router = APIRouter(prefix="/recommendations", tags=["recommendations"])
    viewer = [Depends(gate(doorkeeper, Role.VIEWER))]
    operator = gate(doorkeeper, Role.OPERATOR)

    @router.get("", dependencies=viewer)
    def listed(state: str | None = None) -> JSONResponse:
        """Return ``{"recommendations": [RecommendationLine]}``, newest first."""
        return _answer({"recommendations": console.recommendations(state)})

    @router.get("/{number}", dependencies=viewer)
    def shown(number: Number) -> JSONResponse:
        """Return ``RecommendationView``: what was said, transitions, actions, what it brought."""
        return _answer(console.recommendation(number))

    @router.post("/approve-together")
    def approved(body: SetBody, actor: Actor = Depends(operator)) -> JSONResponse:
        """Approve a set, all or none; return ``{"recommendations": [RecommendationView]}``."""
        done = console.approve_together(body.numbers, actor, body.reason)
        return _answer({"recommendations": done})

    @router.post("/{number}/gate")
    def gate_run(number: Number, actor: Actor = Depends(operator)) -> JSONResponse:
        """Evaluate each proposed Setting on the route; return ``RecommendationView``, ``gate``."""
        return _answer(console.run_gate(number, actor))

    @router.post("/{number}/{act}")
    def decided(
        number: Number,
        act: str,
        body: DecisionBody | None = None,
        actor: Actor = Depends(operator),
    ) -> JSONResponse:
        """Approve, reject, hold or roll_back; return ``RecommendationView`` afterwards."""
        given = body or DecisionBody()
        done = console.decide(number, act_named(act), actor, given.reason, given.revision)
        return _answer(done)

    return router


def _alarm_router(console: Console, doorkeeper: TokenDoorkeeper) -> APIRouter:
    router = APIRouter(prefix="/alarms", tags=["traffic"])
    operator = gate(doorkeeper, Role.OPERATOR)

    @router.post("/{number}/acknowledge")
    def acknowledged(
        number: Number, body: DecisionBody, actor: Actor = Depends(operator)
    ) -> JSONResponse:
        """Note that somebody looked at an alarm; return ``AlarmLine`` afterwards."""
        return _answer(console.acknowledge(number, actor, body.reason))

    return router


def _token_router(console: Console, doorkeeper: TokenDoorkeeper) -> APIRouter:
    router = APIRouter(prefix="/tokens", tags=["tokens"])
    admin = gate(doorkeeper, Role.ADMIN)

    @router.get("", dependencies=[Depends(admin)])
    def listed() -> JSONResponse:
        """Return ``{"tokens": [TokenLine]}``; the tokens themselves are never shown again."""
        return _answer({"tokens": console.tokens()})

    @router.post("")
    def made(body: TokenBody, actor: Actor = Depends(admin)) -> JSONResponse:
        """Make a token; return ``{"token": TEXT}``, the only time it is shown."""
        token = console.create_token(body.name.strip(), role_named(body.role), actor)
        return _answer({"token": token}, HTTPStatus.CREATED)

    @router.delete("/{number}")
    def revoked(number: Number, actor: Actor = Depends(admin)) -> JSONResponse:
        """Revoke a token; return ``TokenLine``."""
        return _answer(console.revoke_token(number, actor))

    return router


def _answer(view: object, status: HTTPStatus = HTTPStatus.OK) -> JSONResponse:
    return JSONResponse(json_form(view), status_code=status)
