from __future__ import annotations

from tests.databases import (
    database,
    empty_database,
    kind,
    migrated_file,
    migrated_name,
    open_another,
    postgres,
    store,
)

__all__ = [
    "database",
    "empty_database",
    "kind",
    "migrated_file",
    "migrated_name",
    "open_another",
    "postgres",
    "store",
]
