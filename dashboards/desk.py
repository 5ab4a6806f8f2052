"""What every page handler works with: the console, the doorkeeper and the template renderer."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

from fastapi import Path as PathParameter
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dashboards.access import Doorkeeper, Role, Session, require_role
from dashboards.console import Console
from dashboards.errors import NotAllowed
from dashboards.formatting import FILTERS

Number = Annotated[int, PathParameter(ge=1, le=2**63 - 1)]
"""The number of a row in an address; what no database could hold is not found."""
PACKAGE_DIR = Path(__file__).parent


class Desk:
    """Checks the visitor, renders the page."""

    def __init__(
        self, console: Console, doorkeeper: Doorkeeper, now: Callable[[], datetime]
    ) -> None:
        self.console = console
        self.doorkeeper = doorkeeper
        self._now = now
        self._templates = Jinja2Templates(env=_environment())

    def visitor(self, request: Request, needed: Role = Role.VIEWER) -> Session:
        """Return the visitor's session.

        Raises:
            SignInNeeded: nobody is signed in.
            NotAllowed: the role is too low.
        """
        return require_role(self.doorkeeper.session_of(request), needed)

    def form_visitor(self, request: Request, needed: Role, csrf: str) -> Session:
        """Return the session of a visitor who sent one of our own forms.

        Raises:
            SignInNeeded: nobody is signed in.
            NotAllowed: the role is too low, or the form was not made for this session.
        """
        session = self.visitor(request, needed)
        if not hmac.compare_digest(session.csrf.encode(), csrf.encode()):
            raise NotAllowed("this form is out of date or not ours; reload the page and try again")
        return session

    def page(
        self,
        request: Request,
        session: Session | None,
        template: str,
        *,
        status: HTTPStatus = HTTPStatus.OK,
        **context: object,
    ) -> Response:
        """Render a template; it sees ``session``, ``now``, ``may_operate`` and ``is_admin``."""
        role = session.actor.role if session else None
        known: dict[str, object] = {
            "session": session,
            "now": self._now(),
            "may_operate": role is not None and role.allows(Role.OPERATOR),
            "is_admin": role is Role.ADMIN,
            "path": request.url.path,
        }
        return self._templates.TemplateResponse(
            request, template, known | context, status_code=status
        )


def see_other(path: str) -> Response:
    """Send the browser to a page of ours after a form."""
    return RedirectResponse(path, status_code=HTTPStatus.SEE_OTHER)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(PACKAGE_DIR / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment
