"""What every table is made from: the root with its names, number columns, parents."""

from __future__ import annotations

from sqlalchemy import ForeignKey, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tuner.store.columns import BigKey

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Root of all tables."""

    metadata = MetaData(naming_convention=NAMING)


def key_column() -> Mapped[int]:
    """Return the column of a number that the database counts up."""
    return mapped_column(BigKey, primary_key=True, autoincrement=True)


def parent_column(column: str, *, primary_key: bool = False) -> Mapped[int]:
    """Refer to a parent row with which this one is deleted."""
    return mapped_column(
        BigKey,
        ForeignKey(column, ondelete="CASCADE"),
        primary_key=primary_key,
        index=not primary_key,
    )
