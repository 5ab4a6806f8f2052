"""The overview and the page of one route."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dashboards.charts import history_chart, position_chart
from dashboards.console import DEFAULT_PERIOD_S, PERIODS_S
from dashboards.desk import Desk


def pages(desk: Desk) -> APIRouter:
    """Return the routes of the overview and of the route pages."""
    router = APIRouter()

    @router.get("/")
    def overview(request: Request, period: int = DEFAULT_PERIOD_S) -> Response:
        session = desk.visitor(request)
        view = desk.console.overview(period)
        return desk.page(request, session, "overview.html", view=view, periods=PERIODS_S)

    @router.get("/routes/{name}")
    def route(request: Request, name: str, period: int = DEFAULT_PERIOD_S) -> Response:
        session = desk.visitor(request)
        view = desk.console.route(name, period)
        return desk.page(
            request,
            session,
            "route.html",
            view=view,
            periods=PERIODS_S,
            positions=position_chart(view.curves),
            history=history_chart(view.history),
        )

    return router
