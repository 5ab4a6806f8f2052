"""Proof by route: rows of replays and reports, evaluations of a route, gate runs.

Revision 0004 of 2026-12-01. Types are written out, so that this file never changes with the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables and add columns; old evaluations are of no route."""
    _add_columns()
    _create_routes()
    _create_gate_runs()


def downgrade() -> None:
    """Drop what was added."""
    for table in ("gate_runs", "divergence_routes", "replay_routes"):
        op.drop_table(table)
    for name in ("outputs_pass", "load", "route"):
        op.drop_column("evaluations", name)
    for name in ("conversation", "rows"):
        op.drop_column("replay_pairs", name)


def _add_columns() -> None:
    one, none, no = sa.text("1"), sa.text("''"), sa.false()
    op.add_column(
        "replay_pairs", sa.Column("rows", sa.Integer(), nullable=False, server_default=one)
    )
    op.add_column(
        "replay_pairs", sa.Column("conversation", sa.Text(), nullable=False, server_default=none)
    )
    op.add_column("evaluations", sa.Column("route", sa.String(length=64), nullable=True))
    op.add_column("evaluations", sa.Column("load", sa.String(length=16), nullable=True))
    op.add_column(
        "evaluations", sa.Column("outputs_pass", sa.Boolean(), nullable=False, server_default=no)
    )


def _create_routes() -> None:
    op.create_table(
        "replay_routes",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("replay", BIG, nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("load", sa.String(length=16), nullable=False),
        sa.Column("pairs", sa.Integer(), nullable=False),
        sa.Column("clusters", sa.Integer(), nullable=False),
        sa.Column("needed_pairs", sa.Integer(), nullable=False),
        sa.Column("precision", sa.Float(), nullable=False),
        sa.Column("time_ratio", sa.Text(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        _parent("replay_routes", "replay", "replays"),
        sa.PrimaryKeyConstraint("id", name="pk_replay_routes"),
        sa.UniqueConstraint("replay", "route", "load", name="uq_replay_routes_replay"),
    )
    op.create_index("ix_replay_routes_replay", "replay_routes", ["replay"], unique=False)
    op.create_table(
        "divergence_routes",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("divergence", BIG, nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("is_passing", sa.Boolean(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        _parent("divergence_routes", "divergence", "divergences"),
        sa.PrimaryKeyConstraint("id", name="pk_divergence_routes"),
        sa.UniqueConstraint("divergence", "route", name="uq_divergence_routes_divergence"),
    )
    op.create_index(
        "ix_divergence_routes_divergence", "divergence_routes", ["divergence"], unique=False
    )


def _create_gate_runs() -> None:
    op.create_table(
        "gate_runs",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("moved_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("evaluation", BIG, nullable=True),
        sa.ForeignKeyConstraint(
            ["digest"],
            ["pinned_configs.digest"],
            name="fk_gate_runs_digest_pinned_configs",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["evaluation"],
            ["evaluations.id"],
            name="fk_gate_runs_evaluation_evaluations",
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_gate_runs"),
    )
    op.create_index("ix_gate_runs_digest", "gate_runs", ["digest"], unique=False)
    op.create_index(
        "uq_gate_runs_open",
        "gate_runs",
        ["engine", "route", "digest"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )


def _parent(table: str, column: str, parent: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [column], [f"{parent}.id"], name=f"fk_{table}_{column}_{parent}", ondelete="CASCADE"
    )
