"""The first tables.

Revision 0001 of 2026-11-30. Types are written out, so that this file never changes with the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

TABLES = (
    "access_tokens",
    "audit",
    "cursors",
    "device_samples",
    "engine_samples",
    "job_runs",
    "leases",
    "pinned_configs",
    "recommendations",
    "settings",
    "windows",
    "captures",
    "decode_steps",
    "divergences",
    "observations",
    "plans",
    "recommendation_transitions",
    "replays",
    "request_traces",
    "step_drafts",
    "step_groups",
    "divergence_pairs",
    "evaluations",
    "replay_pairs",
)


def upgrade() -> None:
    """Create every table, parents first."""
    _create_access_tokens()
    _create_audit()
    _create_cursors()
    _create_device_samples()
    _create_engine_samples()
    _create_job_runs()
    _create_leases()
    _create_pinned_configs()
    _create_recommendations()
    _create_settings()
    _create_windows()
    _create_captures()
    _create_decode_steps()
    _create_divergences()
    _create_observations()
    _create_plans()
    _create_recommendation_transitions()
    _create_replays()
    _create_request_traces()
    _create_step_drafts()
    _create_step_groups()
    _create_divergence_pairs()
    _create_evaluations()
    _create_replay_pairs()


def downgrade() -> None:
    """Drop every table, children first."""
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_access_tokens() -> None:
    op.create_table(
        "access_tokens",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_access_tokens"),
        sa.UniqueConstraint("token_hash", name="uq_access_tokens_token_hash"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_at", "audit", ["at"], unique=False)


def _create_cursors() -> None:
    op.create_table(
        "cursors",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("journal", sa.String(length=16), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("last_seq", BIG, nullable=False),
        sa.Column("lost", BIG, nullable=False),
        sa.Column("deleted", BIG, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("pulled_s", sa.Float(), nullable=True),
        sa.Column("caught_up_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_cursors"),
        sa.UniqueConstraint("engine", "journal", "boot_id", name="uq_cursors_engine"),
    )


def _create_device_samples() -> None:
    op.create_table(
        "device_samples",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("device", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("busy_ratio", sa.Float(), nullable=False),
        sa.Column("memory_used_bytes", BIG, nullable=False),
        sa.Column("memory_total_bytes", BIG, nullable=False),
        sa.Column("power_w", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_device_samples"),
    )
    op.create_index(
        "ix_device_samples_device_at", "device_samples", ["device", "at_s"], unique=False
    )


def _create_engine_samples() -> None:
    op.create_table(
        "engine_samples",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("kv_used_ratio", sa.Float(), nullable=False),
        sa.Column("plan_digest", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_engine_samples"),
    )
    op.create_index(
        "ix_engine_samples_engine_at", "engine_samples", ["engine", "at_s"], unique=False
    )


def _create_job_runs() -> None:
    op.create_table(
        "job_runs",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("due_key", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("duration_s", sa.Float(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_job_runs"),
        sa.UniqueConstraint("job", "due_key", name="uq_job_runs_job"),
    )
    op.create_index("ix_job_runs_job_started", "job_runs", ["job", "started_at"], unique=False)


def _create_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("token", BIG, nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )


def _create_pinned_configs() -> None:
    op.create_table(
        "pinned_configs",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("setting_label", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_pinned_configs"),
    )


def _create_recommendations() -> None:
    op.create_table(
        "recommendations",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("advice", sa.String(length=24), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("refreshed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("plan_digest", sa.String(length=64), nullable=False),
        sa.Column("content", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_recommendations"),
    )
    op.create_index(
        "ix_recommendations_route_state",
        "recommendations",
        ["engine", "route", "state"],
        unique=False,
    )
    op.create_index(
        "uq_recommendations_pending",
        "recommendations",
        ["engine", "route"],
        unique=True,
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )


def _create_settings() -> None:
    op.create_table(
        "settings",
        sa.Column("key", sa.String(length=16), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_settings"),
    )


def _create_windows() -> None:
    op.create_table(
        "windows",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("start_s", sa.Float(), nullable=False),
        sa.Column("end_s", sa.Float(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_windows"),
        sa.UniqueConstraint("engine", "start_s", "end_s", name="uq_windows_engine"),
    )
    op.create_index("ix_windows_end_s", "windows", ["end_s"], unique=False)


def _create_captures() -> None:
    op.create_table(
        "captures",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("cursor", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("prompt_ids", sa.Text(), nullable=False),
        sa.Column("sampling", sa.Text(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("redactions", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["cursor"], ["cursors.id"], name="fk_captures_cursor_cursors"),
        sa.PrimaryKeyConstraint("id", name="pk_captures"),
        sa.UniqueConstraint("cursor", "seq", name="uq_captures_cursor"),
    )
    op.create_index(
        "ix_captures_engine_route_at", "captures", ["engine", "route", "at_s"], unique=False
    )


def _create_decode_steps() -> None:
    op.create_table(
        "decode_steps",
        sa.Column("cursor", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("plan_digest", sa.String(length=64), nullable=False),
        sa.Column("load", sa.String(length=16), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("shadow_rows", sa.Integer(), nullable=False),
        sa.Column("positions", sa.Integer(), nullable=False),
        sa.Column("prefill_tokens", sa.Integer(), nullable=False),
        sa.Column("context_tokens", BIG, nullable=False),
        sa.Column("context_bucket", BIG, nullable=False),
        sa.Column("draft_s", sa.Float(), nullable=False),
        sa.Column("verify_s", sa.Float(), nullable=False),
        sa.Column("sample_s", sa.Float(), nullable=False),
        sa.Column("other_s", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["cursor"], ["cursors.id"], name="fk_decode_steps_cursor_cursors"),
        sa.PrimaryKeyConstraint("cursor", "seq", name="pk_decode_steps"),
    )
    op.create_index("ix_decode_steps_engine_at", "decode_steps", ["engine", "at_s"], unique=False)


def _create_divergences() -> None:
    op.create_table(
        "divergences",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("plain", sa.String(length=64), nullable=False),
        sa.Column("tested", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("pairs", sa.Integer(), nullable=False),
        sa.Column("identical", sa.Integer(), nullable=False),
        sa.Column("near_tie", sa.Integer(), nullable=False),
        sa.Column("suspicious", sa.Integer(), nullable=False),
        sa.Column("control_pairs", sa.Integer(), nullable=False),
        sa.Column("control_identical", sa.Integer(), nullable=False),
        sa.Column("is_passing", sa.Boolean(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["plain"], ["pinned_configs.digest"], name="fk_divergences_plain_pinned_configs"
        ),
        sa.ForeignKeyConstraint(
            ["tested"], ["pinned_configs.digest"], name="fk_divergences_tested_pinned_configs"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_divergences"),
    )
    op.create_index("ix_divergences_engine", "divergences", ["engine"], unique=False)
    op.create_index("ix_divergences_tested", "divergences", ["tested"], unique=False)


def _create_observations() -> None:
    op.create_table(
        "observations",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("window", BIG, nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("load", sa.String(length=16), nullable=False),
        sa.Column("evidence", sa.String(length=16), nullable=False),
        sa.Column("passes", BIG, nullable=False),
        sa.Column("verify_passes", BIG, nullable=False),
        sa.Column("drafted", BIG, nullable=False),
        sa.Column("accepted", BIG, nullable=False),
        sa.Column("tokens", BIG, nullable=False),
        sa.Column("attempts", sa.Text(), nullable=False),
        sa.Column("accepts", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["setting"], ["settings.key"], name="fk_observations_setting_settings"
        ),
        sa.ForeignKeyConstraint(
            ["window"], ["windows.id"], name="fk_observations_window_windows", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_observations"),
    )
    op.create_index("ix_observations_window", "observations", ["window"], unique=False)


def _create_plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("recommendation", BIG, nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("before_digest", sa.String(length=64), nullable=False),
        sa.Column("read_back_digest", sa.String(length=64), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["recommendation"],
            ["recommendations.id"],
            name="fk_plans_recommendation_recommendations",
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
    op.create_index("ix_plans_engine", "plans", ["engine"], unique=False)
    op.create_index("ix_plans_recommendation", "plans", ["recommendation"], unique=False)


def _create_recommendation_transitions() -> None:
    op.create_table(
        "recommendation_transitions",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("recommendation", BIG, nullable=False),
        sa.Column("from_state", sa.String(length=16), nullable=True),
        sa.Column("to_state", sa.String(length=16), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["recommendation"],
            ["recommendations.id"],
            name="fk_recommendation_transitions_recommendation_recommendations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_recommendation_transitions"),
    )
    op.create_index(
        "ix_recommendation_transitions_recommendation",
        "recommendation_transitions",
        ["recommendation"],
        unique=False,
    )


def _create_replays() -> None:
    op.create_table(
        "replays",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=True),
        sa.Column("base", sa.String(length=64), nullable=False),
        sa.Column("other", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["base"], ["pinned_configs.digest"], name="fk_replays_base_pinned_configs"
        ),
        sa.ForeignKeyConstraint(
            ["other"], ["pinned_configs.digest"], name="fk_replays_other_pinned_configs"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_replays"),
    )
    op.create_index("ix_replays_engine", "replays", ["engine"], unique=False)


def _create_request_traces() -> None:
    op.create_table(
        "request_traces",
        sa.Column("cursor", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("load", sa.String(length=16), nullable=False),
        sa.Column("is_shadow", sa.Boolean(), nullable=False),
        sa.Column("temperature", sa.Float(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("passes", sa.Integer(), nullable=False),
        sa.Column("drafted", sa.Integer(), nullable=False),
        sa.Column("accepted", sa.Integer(), nullable=False),
        sa.Column("queue_s", sa.Float(), nullable=False),
        sa.Column("ttft_s", sa.Float(), nullable=True),
        sa.Column("duration_s", sa.Float(), nullable=False),
        sa.Column("chunk_gaps", sa.Text(), nullable=False),
        sa.Column("finish_reason", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(
            ["cursor"], ["cursors.id"], name="fk_request_traces_cursor_cursors"
        ),
        sa.ForeignKeyConstraint(
            ["setting"], ["settings.key"], name="fk_request_traces_setting_settings"
        ),
        sa.PrimaryKeyConstraint("cursor", "seq", name="pk_request_traces"),
    )
    op.create_index(
        "ix_request_traces_engine_at", "request_traces", ["engine", "at_s"], unique=False
    )


def _create_step_drafts() -> None:
    op.create_table(
        "step_drafts",
        sa.Column("cursor", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("method", sa.String(length=32), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["cursor"], ["cursors.id"], name="fk_step_drafts_cursor_cursors"),
        sa.PrimaryKeyConstraint("cursor", "seq", "place", name="pk_step_drafts"),
    )
    op.create_index("ix_step_drafts_engine_at", "step_drafts", ["engine", "at_s"], unique=False)


def _create_step_groups() -> None:
    op.create_table(
        "step_groups",
        sa.Column("cursor", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("load", sa.String(length=16), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("is_shadow", sa.Boolean(), nullable=False),
        sa.Column("is_greedy", sa.Boolean(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("outcomes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cursor"], ["cursors.id"], name="fk_step_groups_cursor_cursors"),
        sa.ForeignKeyConstraint(
            ["setting"], ["settings.key"], name="fk_step_groups_setting_settings"
        ),
        sa.PrimaryKeyConstraint("cursor", "seq", "place", name="pk_step_groups"),
    )
    op.create_index("ix_step_groups_engine_at", "step_groups", ["engine", "at_s"], unique=False)


def _create_divergence_pairs() -> None:
    op.create_table(
        "divergence_pairs",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("divergence", BIG, nullable=False),
        sa.Column("arm", sa.String(length=16), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("split_at", sa.Integer(), nullable=True),
        sa.Column("margin", sa.Float(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["divergence"],
            ["divergences.id"],
            name="fk_divergence_pairs_divergence_divergences",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_divergence_pairs"),
    )
    op.create_index(
        "ix_divergence_pairs_divergence", "divergence_pairs", ["divergence"], unique=False
    )


def _create_evaluations() -> None:
    op.create_table(
        "evaluations",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_passing", sa.Boolean(), nullable=False),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("divergence", BIG, nullable=True),
        sa.Column("replay", BIG, nullable=True),
        sa.ForeignKeyConstraint(
            ["digest"], ["pinned_configs.digest"], name="fk_evaluations_digest_pinned_configs"
        ),
        sa.ForeignKeyConstraint(
            ["divergence"], ["divergences.id"], name="fk_evaluations_divergence_divergences"
        ),
        sa.ForeignKeyConstraint(["replay"], ["replays.id"], name="fk_evaluations_replay_replays"),
        sa.PrimaryKeyConstraint("id", name="pk_evaluations"),
    )
    op.create_index("ix_evaluations_digest", "evaluations", ["digest"], unique=False)


def _create_replay_pairs() -> None:
    op.create_table(
        "replay_pairs",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("replay", BIG, nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("other", sa.Text(), nullable=False),
        sa.Column("void_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["replay"], ["replays.id"], name="fk_replay_pairs_replay_replays", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_replay_pairs"),
        sa.UniqueConstraint("replay", "place", name="uq_replay_pairs_replay"),
    )
    op.create_index("ix_replay_pairs_replay", "replay_pairs", ["replay"], unique=False)
