"""The tables. Every time is aware UTC; facts carry Unix seconds as the engine gave them.

Facts hang on a cursor row, which stands for one boot of one engine's journal, so that
(cursor, seq) names a record for good and cannot be stored twice.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, String, Text, false, text
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.orm import Mapped, mapped_column

from tuner.store.columns import BigKey, Json, UtcTime
from tuner.store.schema_gate import DivergenceRouteRow, GateRunRow, ReplayRouteRow
from tuner.store.schema_learning import (
    CalibrationRow,
    CounterfactualRow,
    DecisionRow,
    DriftAlarmRow,
    DriftHistoryRow,
    EngineIdentityRow,
    TrialRow,
)
from tuner.store.table_base import Base, key_column, parent_column

__all__ = [
    "AccessTokenRow",
    "AuditRow",
    "Base",
    "CalibrationRow",
    "CaptureRow",
    "CounterfactualRow",
    "CursorRow",
    "DecisionRow",
    "DeviceSampleRow",
    "DivergencePairRow",
    "DivergenceRouteRow",
    "DivergenceRow",
    "DriftAlarmRow",
    "DriftHistoryRow",
    "EngineIdentityRow",
    "EngineSampleRow",
    "EvaluationRow",
    "GateRunRow",
    "JobRunRow",
    "LeaseRow",
    "ObservationRow",
    "OutcomeRow",
    "PinnedConfigRow",
    "PlanRow",
    "RecommendationEvidenceRow",
    "RecommendationRow",
    "ReplayPairRow",
    "ReplayRouteRow",
    "ReplayRow",
    "RequestTraceRow",
    "SettingRow",
    "StepDraftRow",
    "StepGroupRow",
    "StepRow",
    "TransitionRow",
    "TrialRow",
    "WindowRow",
]

# -- facts ----------------------------------------------------------------------------------------


class CursorRow(Base):
    """How far one boot of one engine's journal has been read.

    ``journal`` is ``steps`` or ``captures``. ``lost`` counts records overwritten before they were
    read, ``deleted`` those stored and too old by now. ``caught_up_s`` is the start of the last pull
    that reached the journal's end.
    """

    __tablename__ = "cursors"
    __table_args__ = (Unique("engine", "journal", "boot_id"),)

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    journal: Mapped[str] = mapped_column(String(16))
    boot_id: Mapped[str] = mapped_column(String(64))
    last_seq: Mapped[int] = mapped_column(BigKey)
    lost: Mapped[int] = mapped_column(BigKey)
    deleted: Mapped[int] = mapped_column(BigKey)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    pulled_s: Mapped[float | None] = mapped_column(Float)
    caught_up_s: Mapped[float | None] = mapped_column(Float)


class SettingRow(Base):
    """A Setting, named by the front of its digest wherever facts refer to it."""

    __tablename__ = "settings"

    key: Mapped[str] = mapped_column(String(16), primary_key=True)
    label: Mapped[str] = mapped_column(Text)
    body: Mapped[object] = mapped_column(Json)


class StepRow(Base):
    """One DecodeStep without its groups and drafts.

    ``rows`` are the decoding sequences, ``shadow_rows`` those among them that were replayed,
    ``context_bucket`` is a power of two at or below ``context_tokens`` (0 for none).
    """

    __tablename__ = "decode_steps"
    __table_args__ = (Index("ix_decode_steps_engine_at", "engine", "at_s"),)

    cursor: Mapped[int] = mapped_column(BigKey, ForeignKey("cursors.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigKey, primary_key=True)
    engine: Mapped[str] = mapped_column(String(64))
    at_s: Mapped[float] = mapped_column(Float)
    plan_digest: Mapped[str] = mapped_column(String(64))
    load: Mapped[str] = mapped_column(String(16))
    running: Mapped[int] = mapped_column(Integer)
    waiting: Mapped[int] = mapped_column(Integer)
    rows: Mapped[int] = mapped_column(Integer)
    shadow_rows: Mapped[int] = mapped_column(Integer)
    positions: Mapped[int] = mapped_column(Integer)
    prefill_tokens: Mapped[int] = mapped_column(Integer)
    context_tokens: Mapped[int] = mapped_column(BigKey)
    context_bucket: Mapped[int] = mapped_column(BigKey)
    draft_s: Mapped[float] = mapped_column(Float)
    verify_s: Mapped[float] = mapped_column(Float)
    sample_s: Mapped[float] = mapped_column(Float)
    other_s: Mapped[float] = mapped_column(Float)
    is_reference: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())


class StepGroupRow(Base):
    """The rows of one step that share route, Setting, shadow and greedy marks.

    ``outcomes`` is the canonical JSON of sorted [drafted, accepted, rows], so that equal outcomes
    can be counted by the database.
    """

    __tablename__ = "step_groups"
    __table_args__ = (Index("ix_step_groups_engine_at", "engine", "at_s"),)

    cursor: Mapped[int] = mapped_column(BigKey, ForeignKey("cursors.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigKey, primary_key=True)
    place: Mapped[int] = mapped_column(Integer, primary_key=True)
    engine: Mapped[str] = mapped_column(String(64))
    at_s: Mapped[float] = mapped_column(Float)
    load: Mapped[str] = mapped_column(String(16))
    route: Mapped[str] = mapped_column(String(64))
    setting: Mapped[str] = mapped_column(String(16), ForeignKey("settings.key"))
    is_shadow: Mapped[bool] = mapped_column(Boolean)
    is_greedy: Mapped[bool] = mapped_column(Boolean)
    rows: Mapped[int] = mapped_column(Integer)
    tokens: Mapped[int] = mapped_column(Integer)
    outcomes: Mapped[str] = mapped_column(Text)


class StepDraftRow(Base):
    """What drafting with one method cost in one step."""

    __tablename__ = "step_drafts"
    __table_args__ = (Index("ix_step_drafts_engine_at", "engine", "at_s"),)

    cursor: Mapped[int] = mapped_column(BigKey, ForeignKey("cursors.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigKey, primary_key=True)
    place: Mapped[int] = mapped_column(Integer, primary_key=True)
    engine: Mapped[str] = mapped_column(String(64))
    at_s: Mapped[float] = mapped_column(Float)
    method: Mapped[str] = mapped_column(String(32))
    rows: Mapped[int] = mapped_column(Integer)
    tokens: Mapped[int] = mapped_column(Integer)
    depth: Mapped[int] = mapped_column(Integer)
    seconds: Mapped[float] = mapped_column(Float)


class RequestTraceRow(Base):
    """One finished request."""

    __tablename__ = "request_traces"
    __table_args__ = (Index("ix_request_traces_engine_at", "engine", "at_s"),)

    cursor: Mapped[int] = mapped_column(BigKey, ForeignKey("cursors.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigKey, primary_key=True)
    engine: Mapped[str] = mapped_column(String(64))
    at_s: Mapped[float] = mapped_column(Float)
    request_id: Mapped[str] = mapped_column(Text)
    route: Mapped[str] = mapped_column(String(64))
    setting: Mapped[str] = mapped_column(String(16), ForeignKey("settings.key"))
    load: Mapped[str] = mapped_column(String(16))
    is_shadow: Mapped[bool] = mapped_column(Boolean)
    temperature: Mapped[float] = mapped_column(Float)
    prompt_tokens: Mapped[int] = mapped_column(Integer)
    completion_tokens: Mapped[int] = mapped_column(Integer)
    passes: Mapped[int] = mapped_column(Integer)
    drafted: Mapped[int] = mapped_column(Integer)
    accepted: Mapped[int] = mapped_column(Integer)
    has_grammar: Mapped[bool] = mapped_column(Boolean)
    attempts: Mapped[object] = mapped_column(Json)
    accepts: Mapped[object] = mapped_column(Json)
    queue_s: Mapped[float] = mapped_column(Float)
    ttft_s: Mapped[float | None] = mapped_column(Float)
    duration_s: Mapped[float] = mapped_column(Float)
    chunk_gaps: Mapped[object] = mapped_column(Json)
    finish_reason: Mapped[str] = mapped_column(String(16))


class EngineSampleRow(Base):
    """What an engine said of itself at one moment."""

    __tablename__ = "engine_samples"
    __table_args__ = (Index("ix_engine_samples_engine_at", "engine", "at_s"),)

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    at_s: Mapped[float] = mapped_column(Float)
    boot_id: Mapped[str] = mapped_column(String(64))
    running: Mapped[int] = mapped_column(Integer)
    waiting: Mapped[int] = mapped_column(Integer)
    kv_used_ratio: Mapped[float] = mapped_column(Float)
    plan_digest: Mapped[str] = mapped_column(String(64))


class DeviceSampleRow(Base):
    """One device (a GPU or the CPU) at one moment."""

    __tablename__ = "device_samples"
    __table_args__ = (Index("ix_device_samples_device_at", "device", "at_s"),)

    id: Mapped[int] = key_column()
    device: Mapped[str] = mapped_column(String(32))
    name: Mapped[str] = mapped_column(Text)
    at_s: Mapped[float] = mapped_column(Float)
    busy_ratio: Mapped[float] = mapped_column(Float)
    memory_used_bytes: Mapped[int] = mapped_column(BigKey)
    memory_total_bytes: Mapped[int] = mapped_column(BigKey)
    power_w: Mapped[float | None] = mapped_column(Float)


# -- observations ---------------------------------------------------------------------------------


class WindowRow(Base):
    """A closed window; ``body`` holds requests, step costs, draft costs and mixes."""

    __tablename__ = "windows"
    __table_args__ = (Unique("engine", "start_s", "end_s"),)

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    start_s: Mapped[float] = mapped_column(Float)
    end_s: Mapped[float] = mapped_column(Float, index=True)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    body: Mapped[object] = mapped_column(Json)


class ObservationRow(Base):
    """Sufficient statistics of one route, Setting, load level and evidence in a window."""

    __tablename__ = "observations"

    id: Mapped[int] = key_column()
    window: Mapped[int] = parent_column("windows.id")
    route: Mapped[str] = mapped_column(String(64))
    setting: Mapped[str] = mapped_column(String(16), ForeignKey("settings.key"))
    load: Mapped[str] = mapped_column(String(16))
    evidence: Mapped[str] = mapped_column(String(16))
    is_greedy: Mapped[bool | None] = mapped_column(Boolean)
    passes: Mapped[int] = mapped_column(BigKey)
    verify_passes: Mapped[int] = mapped_column(BigKey)
    drafted: Mapped[int] = mapped_column(BigKey)
    accepted: Mapped[int] = mapped_column(BigKey)
    tokens: Mapped[int] = mapped_column(BigKey)
    attempts: Mapped[object] = mapped_column(Json)
    accepts: Mapped[object] = mapped_column(Json)
    reference_passes: Mapped[int] = mapped_column(BigKey, default=0, server_default=text("0"))


# -- decisions ------------------------------------------------------------------------------------


class PinnedConfigRow(Base):
    """A PinnedConfig under its digest."""

    __tablename__ = "pinned_configs"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    model: Mapped[str] = mapped_column(Text)
    setting_label: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    body: Mapped[object] = mapped_column(Json)


class RecommendationRow(Base):
    """What the policy said about one route, and how far it got.

    ``content`` digests what is proposed, numbers left out: the same proposal said again refreshes
    the pending row instead of adding one.
    """

    __tablename__ = "recommendations"
    __table_args__ = (
        Index("ix_recommendations_route_state", "engine", "route", "state"),
        Index(
            "uq_recommendations_pending",
            "engine",
            "route",
            unique=True,
            sqlite_where=text("state = 'pending'"),
            postgresql_where=text("state = 'pending'"),
        ),
    )

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    route: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    advice: Mapped[str] = mapped_column(String(24))
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    refreshed_at: Mapped[datetime] = mapped_column(UtcTime)
    plan_digest: Mapped[str] = mapped_column(String(64))
    content: Mapped[str] = mapped_column(String(64))
    body: Mapped[object] = mapped_column(Json)
    revision: Mapped[int] = mapped_column(Integer, default=1, server_default=text("1"))
    successor: Mapped[int | None] = mapped_column(BigKey)


class RecommendationEvidenceRow(Base):
    """The figures of a recommendation at one revision; ``facts`` digests what they were read from.

    ``changes`` is a list as in the recommendation's ``body``, ``amount`` counts the evidence.
    """

    __tablename__ = "recommendation_evidence"
    __table_args__ = (Unique("recommendation", "revision"),)

    id: Mapped[int] = key_column()
    recommendation: Mapped[int] = parent_column("recommendations.id")
    revision: Mapped[int] = mapped_column(Integer)
    at: Mapped[datetime] = mapped_column(UtcTime)
    facts: Mapped[str] = mapped_column(String(64))
    advice: Mapped[str] = mapped_column(String(24))
    changes: Mapped[object] = mapped_column(Json)
    amount: Mapped[object] = mapped_column(Json)


class OutcomeRow(Base):
    """A figure of a recommendation as predicted and as measured last, at one load level."""

    __tablename__ = "recommendation_outcomes"
    __table_args__ = (Unique("recommendation", "load"),)

    id: Mapped[int] = key_column()
    recommendation: Mapped[int] = parent_column("recommendations.id")
    load: Mapped[str] = mapped_column(String(16))
    setting: Mapped[object] = mapped_column(Json)
    basis: Mapped[str] = mapped_column(String(24))
    predicted: Mapped[object] = mapped_column(Json)
    realised: Mapped[object] = mapped_column(Json)
    at: Mapped[datetime] = mapped_column(UtcTime)


class TransitionRow(Base):
    """One change of state of a recommendation: from, to, who, when, why."""

    __tablename__ = "recommendation_transitions"

    id: Mapped[int] = key_column()
    recommendation: Mapped[int] = parent_column("recommendations.id")
    from_state: Mapped[str | None] = mapped_column(String(16))
    to_state: Mapped[str] = mapped_column(String(16))
    who: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime] = mapped_column(UtcTime)
    why: Mapped[str] = mapped_column(Text)


class PlanRow(Base):
    """One attempt to bring a plan into force; ``body`` and ``before`` are plans.

    ``purpose`` tells exploration of all routes apart from changes that are meant to last.
    """

    __tablename__ = "plans"

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64), index=True)
    recommendation: Mapped[int | None] = mapped_column(
        BigKey, ForeignKey("recommendations.id", ondelete="SET NULL"), index=True
    )
    at: Mapped[datetime] = mapped_column(UtcTime)
    who: Mapped[str] = mapped_column(Text)
    why: Mapped[str] = mapped_column(Text)
    outcome: Mapped[str] = mapped_column(String(16))
    error: Mapped[str | None] = mapped_column(Text)
    digest: Mapped[str] = mapped_column(String(64))
    before_digest: Mapped[str] = mapped_column(String(64))
    read_back_digest: Mapped[str | None] = mapped_column(String(64))
    body: Mapped[object] = mapped_column(Json)
    before: Mapped[object] = mapped_column(Json)
    purpose: Mapped[str] = mapped_column(String(24), server_default=text("'change'"))


# -- shadow traffic -------------------------------------------------------------------------------


class CaptureRow(Base):
    """A captured request after redaction; ``prompt_ids`` is empty where redaction changed it."""

    __tablename__ = "captures"
    __table_args__ = (
        Unique("cursor", "seq"),
        Index("ix_captures_engine_route_at", "engine", "route", "at_s"),
    )

    id: Mapped[int] = key_column()
    cursor: Mapped[int] = mapped_column(BigKey, ForeignKey("cursors.id"))
    seq: Mapped[int] = mapped_column(BigKey)
    engine: Mapped[str] = mapped_column(String(64))
    at_s: Mapped[float] = mapped_column(Float)
    request_id: Mapped[str] = mapped_column(Text)
    route: Mapped[str] = mapped_column(String(64))
    prompt: Mapped[str] = mapped_column(Text)
    prompt_ids: Mapped[object] = mapped_column(Json)
    sampling: Mapped[object] = mapped_column(Json)
    completion_tokens: Mapped[int] = mapped_column(Integer)
    redactions: Mapped[int] = mapped_column(Integer)


class ReplayRow(Base):
    """A paired run of captured requests on two pinned configs, ``base`` and ``other``."""

    __tablename__ = "replays"

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64), index=True)
    route: Mapped[str | None] = mapped_column(String(64))
    base: Mapped[str] = mapped_column(String(64), ForeignKey("pinned_configs.digest"))
    other: Mapped[str] = mapped_column(String(64), ForeignKey("pinned_configs.digest"))
    state: Mapped[str] = mapped_column(String(16))
    started_at: Mapped[datetime] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    options: Mapped[object] = mapped_column(Json)
    summary: Mapped[object] = mapped_column(Json)
    error: Mapped[str | None] = mapped_column(Text)


class ReplayPairRow(Base):
    """One captured request on both arms; ``base`` and ``other`` hold what each arm measured."""

    __tablename__ = "replay_pairs"
    __table_args__ = (Unique("replay", "place"),)

    id: Mapped[int] = key_column()
    replay: Mapped[int] = parent_column("replays.id")
    place: Mapped[int] = mapped_column(Integer)
    request_id: Mapped[str] = mapped_column(Text)
    route: Mapped[str] = mapped_column(String(64))
    base: Mapped[object] = mapped_column(Json)
    other: Mapped[object] = mapped_column(Json)
    void_reason: Mapped[str | None] = mapped_column(Text)
    rows: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    conversation: Mapped[str] = mapped_column(Text, server_default=text("''"))


class DivergenceRow(Base):
    """A report: greedy outputs of plain decoding against a Setting, with a control arm."""

    __tablename__ = "divergences"

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64), index=True)
    plain: Mapped[str] = mapped_column(String(64), ForeignKey("pinned_configs.digest"))
    tested: Mapped[str] = mapped_column(String(64), ForeignKey("pinned_configs.digest"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    pairs: Mapped[int] = mapped_column(Integer)
    identical: Mapped[int] = mapped_column(Integer)
    near_tie: Mapped[int] = mapped_column(Integer)
    suspicious: Mapped[int] = mapped_column(Integer)
    control_pairs: Mapped[int] = mapped_column(Integer)
    control_identical: Mapped[int] = mapped_column(Integer)
    is_passing: Mapped[bool] = mapped_column(Boolean)
    report: Mapped[object] = mapped_column(Json)


class DivergencePairRow(Base):
    """One prompt of a report; ``arm`` is ``tested`` or ``control``."""

    __tablename__ = "divergence_pairs"

    id: Mapped[int] = key_column()
    divergence: Mapped[int] = parent_column("divergences.id")
    arm: Mapped[str] = mapped_column(String(16))
    place: Mapped[int] = mapped_column(Integer)
    request_id: Mapped[str] = mapped_column(Text)
    route: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(16))
    split_at: Mapped[int | None] = mapped_column(Integer)
    margin: Mapped[float | None] = mapped_column(Float)
    detail: Mapped[str] = mapped_column(Text)


class EvaluationRow(Base):
    """The verdict on one PinnedConfig for one route: a divergence report and a replay together.

    ``load`` is the level that speed was measured at, ``route`` empty in rows older than both.
    """

    __tablename__ = "evaluations"

    id: Mapped[int] = key_column()
    digest: Mapped[str] = mapped_column(String(64), ForeignKey("pinned_configs.digest"), index=True)
    at: Mapped[datetime] = mapped_column(UtcTime)
    is_passing: Mapped[bool] = mapped_column(Boolean)
    reasons: Mapped[object] = mapped_column(Json)
    divergence: Mapped[int | None] = mapped_column(BigKey, ForeignKey("divergences.id"))
    replay: Mapped[int | None] = mapped_column(BigKey, ForeignKey("replays.id"))
    route: Mapped[str | None] = mapped_column(String(64))
    load: Mapped[str | None] = mapped_column(String(16))
    outputs_pass: Mapped[bool] = mapped_column(Boolean, server_default=false())


# -- jobs and access ------------------------------------------------------------------------------


class JobRunRow(Base):
    """One run of a job; (job, due_key) is unique, so that one due time runs once."""

    __tablename__ = "job_runs"
    __table_args__ = (
        Unique("job", "due_key"),
        Index("ix_job_runs_job_started", "job", "started_at"),
    )

    id: Mapped[int] = key_column()
    job: Mapped[str] = mapped_column(String(64))
    due_key: Mapped[str] = mapped_column(String(64))
    holder: Mapped[str] = mapped_column(Text)
    due_at: Mapped[datetime] = mapped_column(UtcTime)
    started_at: Mapped[datetime] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    outcome: Mapped[str] = mapped_column(String(16))
    duration_s: Mapped[float | None] = mapped_column(Float)
    detail: Mapped[str] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)


class LeaseRow(Base):
    """Who may act for all services; ``token`` rises with each new holder and fences old ones."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    holder: Mapped[str] = mapped_column(Text)
    token: Mapped[int] = mapped_column(BigKey)
    expires_at: Mapped[datetime] = mapped_column(UtcTime)


class AccessTokenRow(Base):
    """A token's hash, role and life; the token itself is never stored.

    A session opened before the newest of ``sign_outs`` is over.
    """

    __tablename__ = "access_tokens"

    id: Mapped[int] = key_column()
    name: Mapped[str] = mapped_column(Text)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcTime)
    sign_outs: Mapped[int] = mapped_column(Integer, default=0)


class AuditRow(Base):
    """Something somebody did, or was refused."""

    __tablename__ = "audit"

    id: Mapped[int] = key_column()
    at: Mapped[datetime] = mapped_column(UtcTime, index=True)
    who: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(String(64))
    target: Mapped[str] = mapped_column(Text)
    outcome: Mapped[str] = mapped_column(String(16))
    detail: Mapped[str] = mapped_column(Text)
