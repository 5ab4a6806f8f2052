"""Tokens, signed session cookies and form values; revoking a token ends its sessions at once."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import threading
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
_MAX_ENDED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ticket:
    """What a session cookie says: which token opened it, and a value of its own."""

    token_id: int
    nonce: str


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
        self._ended: dict[str, None] = {}
        self._lock = threading.Lock()
        self.is_secure = urlsplit(settings.public_url).scheme == "https"
        self.cookie_name = f"spectuner_{settings.port}"

    def session_of(self, request: Request) -> Session | None:
        """Return the session that a request's cookie proves; None without a valid one."""
        ticket = self._ticket(request)
        if ticket is None:
            return None
        actor = self._actor(ticket.token_id)
        return None if actor is None else Session(actor=actor, csrf=self._csrf(ticket.nonce))

    def sign_in(self, request: Request, token: str, response: Response) -> Actor:
        """Exchange a token for a session cookie, set on the response.

        Raises:
            SignInNeeded: the token is unknown, expired or revoked.
            TooManyAttempts: too many wrong tokens from this address lately.
        """
        found = self._checked(request, token)
        content = self._signer.dumps([found.id, secrets.token_urlsafe(16)])
        response.set_cookie(
            self.cookie_name,
            content if isinstance(content, str) else content.decode(),
            max_age=int(SESSION_LIFE.total_seconds()),
            path="/",
            secure=self.is_secure,
            httponly=True,
            samesite="strict",
        )
        self._note(found.name, "sign_in", f"token {found.id}", "done")
        return _actor_of(found)

    def sign_out(self, request: Request, response: Response) -> None:
        """End the session of a request and take its cookie away."""
        ticket = self._ticket(request)
        if ticket is not None:
            with self._lock:
                self._ended[ticket.nonce] = None
                while len(self._ended) > _MAX_ENDED:
                    self._ended.pop(next(iter(self._ended)))
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
            self._note(address, "sign_in", "token", "refused")
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
        ticket = _Ticket(token_id=int(content[0]), nonce=str(content[1]))
        with self._lock:
            return None if ticket.nonce in self._ended else ticket

    def _actor(self, token_id: int) -> Actor | None:
        try:
            with self._store.reading() as session:
                token = access.one(session, token_id)
        except NotFound:
            return None
        return _actor_of(token) if token.is_valid(self._now()) else None

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
