"""Tokens, signed session cookies and form values; revoking a token ends its sessions at once.

A cookie says how often its token had been signed out of, so that signing out ends every session
of the token, for good and in every service on the database.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import Response

from dashboards.access import Actor, Role, Session
from dashboards.errors import NotAllowed, SignInNeeded, TooManyAttempts
from tuner.api.rate_limit import FailureLimit
from tuner.errors import NotFound
from tuner.settings import Settings
from tuner.store import Store, access, audit

SESSION_LIFE = timedelta(days=7)
MAX_FAILURES = 20
FAILURE_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ticket:
    """What a session cookie says: which token opened it after which sign-outs, its own value."""

    token_id: int
    nonce: str
    sign_outs: int


class TokenDoorkeeper:
    """Implements ``dashboards.access.Doorkeeper`` on the store's access tokens."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        secret: str,
        now: Callable[[], datetime],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._secret = secret.encode()
        self._now = now
        self._signer = URLSafeTimedSerializer(secret, salt="spectuner session")
        self._limit = FailureLimit(MAX_FAILURES, FAILURE_WINDOW_S, monotonic_s)
        self.is_secure = urlsplit(settings.public_url).scheme == "https"
        self.cookie_name = f"spectuner_{settings.port}"

    def session_of(self, request: Request) -> Session | None:
        """Return the session that a request's cookie proves; None without a valid one."""
        ticket = self._ticket(request)
        if ticket is None:
            return None
        actor = self._actor(ticket)
        return None if actor is None else Session(actor=actor, csrf=self._csrf(ticket.nonce))

    def sign_in(self, request: Request, token: str, response: Response) -> Actor:
        """Exchange a token for a session cookie, set on the response.

        Raises:
            SignInNeeded: the token is unknown, expired or revoked.
            TooManyAttempts: too many wrong tokens from this address lately.
        """
        found = self._checked(request, token)
        content = self._signer.dumps([found.id, secrets.token_urlsafe(16), found.sign_outs])
        response.set_cookie(
            self.cookie_name,
            content if isinstance(content, str) else content.decode(),
            max_age=int(SESSION_LIFE.total_seconds()),
            path="/",
            secure=self.is_secure,
            httponly=True,
            samesite="strict",
        )
        self._note(found.name, audit.SIGN_IN, f"token {found.id}", "done")
        return _actor_of(found)

    def sign_out(self, request: Request, response: Response) -> None:
        """End the sessions of a request's token and take its cookie away."""
        ticket = self._ticket(request)
        if ticket is not None and self._actor(ticket) is not None:
            with self._store.writing() as session:
                access.sign_out(session, ticket.token_id)
        response.delete_cookie(
            self.cookie_name, path="/", secure=self.is_secure, httponly=True, samesite="strict"
        )

    def bearer(self, request: Request, needed: Role) -> Actor:
        """Return who calls the JSON API.

        Raises:
            SignInNeeded: there is no bearer token, or it is not valid.
            TooManyAttempts: too many wrong tokens from this address lately.
            NotAllowed: the role is too low.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise SignInNeeded("send a token: `Authorization: Bearer TOKEN`")
        actor = _actor_of(self._checked(request, token.strip()))
        if not actor.role.allows(needed):
            raise NotAllowed(f"token {actor.name!r} has role {actor.role}; this needs {needed}")
        return actor

    def _checked(self, request: Request, token: str) -> access.AccessToken:
        address = request.client.host if request.client else "unknown"
        wait_s = self._limit.wait_s(address)
        if wait_s > 0:
            raise TooManyAttempts(
                f"too many wrong tokens from {address}; try again in {math.ceil(wait_s)} s"
            )
        with self._store.reading() as session:
            found = access.by_secret(session, token, self._now())
        if found is None:
            self._limit.note_failure(address)
            self._note(address, audit.SIGN_IN, "token", audit.REFUSED)
            raise SignInNeeded(
                "this token is unknown, expired or revoked; "
                "`spectuner db token NAME` makes a new one"
            )
        return found

    def _ticket(self, request: Request) -> _Ticket | None:
        cookie = request.cookies.get(self.cookie_name, "")
        try:
            content = self._signer.loads(cookie, max_age=int(SESSION_LIFE.total_seconds()))
        except BadSignature:
            return None
        if len(content) != len(_Ticket.__slots__):
            return None
        token_id, nonce, sign_outs = content
        return _Ticket(token_id=int(token_id), nonce=str(nonce), sign_outs=int(sign_outs))

    def _actor(self, ticket: _Ticket) -> Actor | None:
        try:
            with self._store.reading() as session:
                token = access.one(session, ticket.token_id)
        except NotFound:
            return None
        is_open = token.is_valid(self._now()) and token.sign_outs == ticket.sign_outs
        return _actor_of(token) if is_open else None

    def _csrf(self, nonce: str) -> str:
        return hmac.new(self._secret, f"csrf {nonce}".encode(), hashlib.sha256).hexdigest()

    def _note(self, who: str, action: str, target: str, outcome: str) -> None:
        entry = audit.AuditEntry(
            at=self._now(), who=who, action=action, target=target, outcome=outcome
        )
        with self._store.writing() as session:
            audit.add(session, entry)


def _actor_of(token: access.AccessToken) -> Actor:
    return Actor(name=token.name, role=Role(token.role))
