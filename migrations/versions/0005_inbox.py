"""Revisions, evidence and outcomes of recommendations; what a change of the plan is for.

Revision 0005 of 2026-12-01. Types are written out, so that this file never changes with the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add columns and the table of evidence; old recommendations have none but their own body."""
    op.add_column(
        "recommendations",
        sa.Column("revision", sa.Integer(), nullable=False, server_default=sa.text("1")),
    )
    op.add_column("recommendations", sa.Column("successor", BIG, nullable=True))
    op.add_column(
        "plans",
        sa.Column(
            "purpose", sa.String(length=24), nullable=False, server_default=sa.text("'change'")
        ),
    )
    _create_evidence()
    _create_outcomes()


def downgrade() -> None:
    """Drop what was added."""
    op.drop_table("recommendation_outcomes")
    op.drop_table("recommendation_evidence")
    op.drop_column("plans", "purpose")
    op.drop_column("recommendations", "successor")
    op.drop_column("recommendations", "revision")


def _create_evidence() -> None:
    op.create_table(
        "recommendation_evidence",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("recommendation", BIG, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("facts", sa.String(length=64), nullable=False),
        sa.Column("advice", sa.String(length=24), nullable=False),
        sa.Column("changes", sa.Text(), nullable=False),
        sa.Column("amount", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["recommendation"],
            ["recommendations.id"],
            name="fk_recommendation_evidence_recommendation_recommendations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_recommendation_evidence"),
        sa.UniqueConstraint(
            "recommendation", "revision", name="uq_recommendation_evidence_recommendation"
        ),
    )
    op.create_index(
        "ix_recommendation_evidence_recommendation",
        "recommendation_evidence",
        ["recommendation"],
        unique=False,
    )


def _create_outcomes() -> None:
    op.create_table(
        "recommendation_outcomes",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("recommendation", BIG, nullable=False),
        sa.Column("load", sa.String(length=16), nullable=False),
        sa.Column("setting", sa.Text(), nullable=False),
        sa.Column("basis", sa.String(length=24), nullable=False),
        sa.Column("predicted", sa.Text(), nullable=False),
        sa.Column("realised", sa.Text(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["recommendation"],
            ["recommendations.id"],
            name="fk_recommendation_outcomes_recommendation_recommendations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_recommendation_outcomes"),
        sa.UniqueConstraint(
            "recommendation", "load", name="uq_recommendation_outcomes_recommendation"
        ),
    )
    op.create_index(
        "ix_recommendation_outcomes_recommendation",
        "recommendation_outcomes",
        ["recommendation"],
        unique=False,
    )
