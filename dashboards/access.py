"""Who may do what: roles, the signed-in actor, and the seam to whatever checks tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from dashboards.errors import NotAllowed, SignInNeeded


class Role(StrEnum):
    """What a token allows; each role may do what the ones before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: Role) -> bool:
        """Return whether this role may do what ``needed`` may."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts.

    Attributes:
        name: name of the token; written into every transition row.
        role: what the token allows.
    """

    name: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A signed-in browser.

    Attributes:
        actor: who signed in.
        csrf: value that every form of this session must carry.
    """

    actor: Actor
    csrf: str


class Doorkeeper(Protocol):
    """Checks tokens and keeps sessions."""

    def session_of(self, request: Request) -> Session | None:
        """Return the session that a request's cookie proves; None without a valid one."""

    def sign_in(self, request: Request, token: str, response: Response) -> Actor:
        """Exchange a token for a session cookie, set on the response.

        Raises:
            SignInNeeded: the token is unknown, expired or revoked.
            TooManyAttempts: too many wrong tokens from this address lately.
        """

    def sign_out(self, request: Request, response: Response) -> None:
        """End the session of a request and take its cookie away."""


def require_role(session: Session | None, needed: Role) -> Session:
    """Return the session if its role is high enough.

    Raises:
        SignInNeeded: there is no session.
        NotAllowed: the role is too low.
    """
    if session is None:
        raise SignInNeeded("sign in to see this page; `spectuner db token NAME` prints a link")
    if not session.actor.role.allows(needed):
        raise NotAllowed(
            f"token {session.actor.name!r} has role {session.actor.role}; this needs {needed}"
        )
    return session
