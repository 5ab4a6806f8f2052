"""Column types: aware UTC times, canonical JSON, 64-bit keys. Used by the tables only."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, Text
from sqlalchemy.types import TypeDecorator

BigKey = BigInteger().with_variant(Integer, "sqlite")
"""64-bit integer that counts by itself on both databases."""


class UtcTime(TypeDecorator[datetime]):
    """An aware time, UTC on the way out; a naive one is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Turn an aware time into UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"time {value.isoformat()} has no time zone; give an aware one")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Mark what SQLite returns without a zone as the UTC it was stored in."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Json(TypeDecorator[object]):
    """A value kept as canonical JSON text, so that equal values are equal texts."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> str:
        """Serialise; a number that JSON does not know (NaN, infinity) is refused."""
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )

    def process_result_value(self, value: str | None, dialect: Dialect) -> object:
        """Parse."""
        return None if value is None else json.loads(value)
