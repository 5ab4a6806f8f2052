"""Decisions with their chances, drift, calibrations, counterfactuals; sampling and positions.

Revision 0002 of 2026-11-30. Types are written out, so that this file never changes with the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

TABLES = (
    "calibrations",
    "counterfactuals",
    "decisions",
    "drift_alarms",
    "drift_histories",
    "engine_identities",
)
TRACE_COLUMNS = ("has_grammar", "attempts", "accepts")


def upgrade() -> None:
    """Create the tables and add columns; old rows say that nothing more is known of them."""
    _create_calibrations()
    _create_counterfactuals()
    _create_decisions()
    _create_drift_alarms()
    _create_drift_histories()
    _create_engine_identities()
    op.add_column("observations", sa.Column("is_greedy", sa.Boolean(), nullable=True))
    _add_trace_columns()


def downgrade() -> None:
    """Drop what was added."""
    for column in reversed(TRACE_COLUMNS):
        op.drop_column("request_traces", column)
    op.drop_column("observations", "is_greedy")
    for table in reversed(TABLES):
        op.drop_table(table)


def _add_trace_columns() -> None:
    false, empty = sa.text("false"), sa.text("'[]'")
    op.add_column(
        "request_traces",
        sa.Column("has_grammar", sa.Boolean(), nullable=False, server_default=false),
    )
    for name in ("attempts", "accepts"):
        op.add_column(
            "request_traces", sa.Column(name, sa.Text(), nullable=False, server_default=empty)
        )


def _create_calibrations() -> None:
    op.create_table(
        "calibrations",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("pinned", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calibrations"),
        sa.UniqueConstraint("engine", "pinned", name="uq_calibrations_engine"),
    )


def _create_counterfactuals() -> None:
    op.create_table(
        "counterfactuals",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("cursor", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("is_greedy", sa.Boolean(), nullable=True),
        sa.Column("passes", BIG, nullable=False),
        sa.Column("verify_passes", BIG, nullable=False),
        sa.Column("drafted", BIG, nullable=False),
        sa.Column("accepted", BIG, nullable=False),
        sa.Column("tokens", BIG, nullable=False),
        sa.Column("attempts", sa.Text(), nullable=False),
        sa.Column("accepts", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cursor"], ["cursors.id"], name="fk_counterfactuals_cursor_cursors"
        ),
        sa.ForeignKeyConstraint(
            ["setting"], ["settings.key"], name="fk_counterfactuals_setting_settings"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_counterfactuals"),
        sa.UniqueConstraint("cursor", "seq", "place", name="uq_counterfactuals_cursor"),
    )
    op.create_index(
        "ix_counterfactuals_engine_at", "counterfactuals", ["engine", "at_s"], unique=False
    )


def _create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("plan_digest", sa.String(length=64), nullable=False),
        sa.Column("policy_version", sa.String(length=64), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("load", sa.String(length=16), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("propensity", sa.Float(), nullable=False),
        sa.Column("arms", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["setting"], ["settings.key"], name="fk_decisions_setting_settings"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_decisions"),
        sa.UniqueConstraint("engine", "at_s", "route", "load", name="uq_decisions_engine"),
    )


def _create_drift_alarms() -> None:
    op.create_table(
        "drift_alarms",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=24), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("method", sa.String(length=32), nullable=False),
        sa.Column("since_s", sa.Float(), nullable=False),
        sa.Column("seen_s", sa.Float(), nullable=False),
        sa.Column("saw", sa.Text(), nullable=False),
        sa.Column("advice", sa.Text(), nullable=False),
        sa.Column("figures", sa.Text(), nullable=False),
        sa.Column("raised_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("acknowledged_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("acknowledged_by", sa.Text(), nullable=True),
        sa.Column("acknowledged_why", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_drift_alarms"),
    )
    op.create_index(
        "ix_drift_alarms_engine_since", "drift_alarms", ["engine", "since_s"], unique=False
    )
    op.create_index(
        "uq_drift_alarms_open",
        "drift_alarms",
        ["engine", "kind", "route", "method"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )


def _create_drift_histories() -> None:
    op.create_table(
        "drift_histories",
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=64), nullable=False),
        sa.Column("through_s", sa.Float(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("engine", "scope", name="pk_drift_histories"),
    )


def _create_engine_identities() -> None:
    op.create_table(
        "engine_identities",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("parts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_engine_identities"),
    )
    op.create_index(
        "ix_engine_identities_engine_at", "engine_identities", ["engine", "at_s"], unique=False
    )
