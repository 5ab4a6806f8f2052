"""The secret that signs sessions: from the settings, or made once and kept beside the data."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from tuner.errors import BadRequest
from tuner.settings import Settings

SECRET_FILE = "session.secret"
MIN_LENGTH = 32


def session_secret(settings: Settings) -> str:
    """Return the session secret; the file that keeps it can be read by its owner only.

    Raises:
        BadRequest: the secret is too short to sign with.
    """
    if settings.session_secret:
        return _checked(settings.session_secret, "SPECTUNER_SESSION_SECRET")
    path = settings.data_dir / SECRET_FILE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_once(path)
    return _checked(path.read_text(encoding="ascii").strip(), str(path))


def _write_once(path: Path) -> None:
    """Put a new secret in place whole; whoever is first wins, and a crash leaves nothing half."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(48))
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()


def _checked(secret: str, source: str) -> str:
    if len(secret) < MIN_LENGTH:
        raise BadRequest(
            f"the session secret in {source} has {len(secret)} characters; "
            f"give it at least {MIN_LENGTH}, or leave it out and one is made"
        )
    return secret
