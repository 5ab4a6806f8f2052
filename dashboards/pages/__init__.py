"""The pages, one router a subject; each handler checks the visitor, reads views, renders."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from dashboards.desk import Desk
from dashboards.pages import access, drift, operations, proof, recommendations, tokens, traffic

ROUTERS: tuple[Callable[[Desk], APIRouter], ...] = (
    access.pages,
    traffic.pages,
    recommendations.pages,
    drift.pages,
    proof.pages,
    operations.pages,
    tokens.pages,
)
