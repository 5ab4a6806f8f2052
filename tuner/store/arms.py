"""Settings under short keys, so that facts refer to them in 16 characters."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from collectors.records import Setting
from collectors.records.parsing import as_object, digest_of
from tuner.store.schema import SettingRow
from tuner.store.statements import insert_missing


def key_of(setting: Setting) -> str:
    """Return the key of a Setting: the front of the digest of its wire form."""
    return digest_of(setting.to_dict())[:16]


def remember(session: Session, settings: Iterable[Setting]) -> dict[Setting, str]:
    """Store Settings that are not there yet and return the key of each."""
    keys = {setting: key_of(setting) for setting in settings}
    rows = [
        {"key": key, "label": setting.label, "body": setting.to_dict()}
        for setting, key in sorted(keys.items(), key=lambda item: item[1])
    ]
    insert_missing(session, SettingRow, rows)
    return keys


def by_key(session: Session) -> dict[str, Setting]:
    """Return every Setting ever seen, by key."""
    rows = session.execute(select(SettingRow.key, SettingRow.body))
    return {key: Setting.from_dict(as_object(body, f"setting {key}")) for key, body in rows}
