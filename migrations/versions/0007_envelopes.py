"""Envelopes of the control loop.

Revision 0007 of 2026-12-01. Types are written out, so that this file never changes with the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "envelopes",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("approved", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("is_owed", sa.Boolean(), nullable=False),
        sa.Column("num_changes", sa.Integer(), nullable=False),
        sa.Column("num_fallbacks", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_envelopes"),
    )
    op.create_index(
        "uq_envelopes_current",
        "envelopes",
        ["engine", "route"],
        unique=True,
        sqlite_where=sa.text("state <> 'withdrawn'"),
        postgresql_where=sa.text("state <> 'withdrawn'"),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("envelopes")
