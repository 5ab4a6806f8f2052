"""Tables behind learning: decisions and their chances, drift, evidence that was not served.

They are part of ``tuner.store.schema``, which is where to import them from.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, String, Text, text
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.orm import Mapped, mapped_column

from tuner.store.columns import BigKey, Json, UtcTime
from tuner.store.table_base import Base, key_column


class DecisionRow(Base):
    """The Setting in force on one route at one load level from a moment on, and its chance.

    Rows of one moment belong together; ``route`` and ``load`` are empty in the one that holds
    elsewhere. ``arms`` is a list of [setting key, probability], summing to 1. What was drawn holds
    until ``until_s`` and came from a generator with ``seed``; both are empty where nothing was.
    """

    __tablename__ = "decisions"
    __table_args__ = (Unique("engine", "at_s", "route", "load"),)

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    at_s: Mapped[float] = mapped_column(Float)
    plan_digest: Mapped[str] = mapped_column(String(64))
    policy_version: Mapped[str] = mapped_column(String(64))
    who: Mapped[str] = mapped_column(Text)
    route: Mapped[str] = mapped_column(String(64))
    load: Mapped[str] = mapped_column(String(16))
    setting: Mapped[str] = mapped_column(String(16), ForeignKey("settings.key"))
    propensity: Mapped[float] = mapped_column(Float)
    arms: Mapped[object] = mapped_column(Json)
    seed: Mapped[int | None] = mapped_column(BigKey)
    until_s: Mapped[float | None] = mapped_column(Float)


class TrialRow(Base):
    """A Setting tried on one route and load level; one is open on an engine at most.

    ``change`` is the plan change that began it, ``former`` the Setting before. ``refusal`` says why
    the engine did not take it back, ``refused_change`` is that attempt. ``ended_s`` and ``tokens``
    are empty while it runs; ``reason`` stands from when its end begins.
    """

    __tablename__ = "trials"
    __table_args__ = (
        Index("ix_trials_engine_start", "engine", "start_s"),
        Index(
            "uq_trials_open",
            "engine",
            unique=True,
            sqlite_where=text("ended_s IS NULL"),
            postgresql_where=text("ended_s IS NULL"),
        ),
    )

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    change: Mapped[int | None] = mapped_column(BigKey, ForeignKey("plans.id", ondelete="SET NULL"))
    route: Mapped[str] = mapped_column(String(64))
    load: Mapped[str] = mapped_column(String(16))
    setting: Mapped[str] = mapped_column(String(16), ForeignKey("settings.key"))
    former: Mapped[str] = mapped_column(String(16), ForeignKey("settings.key"))
    start_s: Mapped[float] = mapped_column(Float)
    end_s: Mapped[float] = mapped_column(Float)
    most_tokens: Mapped[int] = mapped_column(BigKey)
    who: Mapped[str] = mapped_column(Text)
    refusal: Mapped[str | None] = mapped_column(Text)
    refused_change: Mapped[int | None] = mapped_column(
        BigKey, ForeignKey("plans.id", ondelete="SET NULL")
    )
    ended_s: Mapped[float | None] = mapped_column(Float)
    tokens: Mapped[int | None] = mapped_column(BigKey)
    reason: Mapped[str | None] = mapped_column(Text)


class EnvelopeRow(Base):
    """What the control loop may do on a route; one that is not withdrawn at most.

    ``body`` is the envelope, ``approved`` the route's plan entries that come back when the loop
    falls back, ``is_owed`` tells that the engine does not have them yet. The two numbers count
    entries that the loop changed, and times that it fell back.
    """

    __tablename__ = "envelopes"
    __table_args__ = (
        Index(
            "uq_envelopes_current",
            "engine",
            "route",
            unique=True,
            sqlite_where=text("state <> 'withdrawn'"),
            postgresql_where=text("state <> 'withdrawn'"),
        ),
    )

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    route: Mapped[str] = mapped_column(String(64))
    body: Mapped[object] = mapped_column(Json)
    approved: Mapped[object] = mapped_column(Json)
    state: Mapped[str] = mapped_column(String(16))
    at: Mapped[datetime] = mapped_column(UtcTime)
    who: Mapped[str] = mapped_column(Text)
    why: Mapped[str] = mapped_column(Text)
    changed_at: Mapped[datetime] = mapped_column(UtcTime)
    changed_by: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    is_owed: Mapped[bool] = mapped_column(Boolean)
    num_changes: Mapped[int] = mapped_column(Integer)
    num_fallbacks: Mapped[int] = mapped_column(Integer)


class DriftHistoryRow(Base):
    """What drift detection keeps of one route; an empty scope is the traffic of all.

    ``through_s`` is the end of the newest window in it.
    """

    __tablename__ = "drift_histories"

    engine: Mapped[str] = mapped_column(String(64), primary_key=True)
    scope: Mapped[str] = mapped_column(String(64), primary_key=True)
    through_s: Mapped[float] = mapped_column(Float)
    body: Mapped[object] = mapped_column(Json)


class DriftAlarmRow(Base):
    """An alarm; empty ``route`` or ``method`` is all. One is open for a place and kind at most."""

    __tablename__ = "drift_alarms"
    __table_args__ = (
        Index("ix_drift_alarms_engine_since", "engine", "since_s"),
        Index(
            "uq_drift_alarms_open",
            "engine",
            "kind",
            "route",
            "method",
            unique=True,
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
    )

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(24))
    route: Mapped[str] = mapped_column(String(64))
    method: Mapped[str] = mapped_column(String(32))
    since_s: Mapped[float] = mapped_column(Float)
    seen_s: Mapped[float] = mapped_column(Float)
    saw: Mapped[str] = mapped_column(Text)
    advice: Mapped[str] = mapped_column(Text)
    figures: Mapped[object] = mapped_column(Json)
    raised_at: Mapped[datetime] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    acknowledged_at: Mapped[datetime | None] = mapped_column(UtcTime)
    acknowledged_by: Mapped[str | None] = mapped_column(Text)
    acknowledged_why: Mapped[str | None] = mapped_column(Text)


class EngineIdentityRow(Base):
    """What an engine was made of from a moment on: hashes and versions by part."""

    __tablename__ = "engine_identities"
    __table_args__ = (Index("ix_engine_identities_engine_at", "engine", "at_s"),)

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    at_s: Mapped[float] = mapped_column(Float)
    boot_id: Mapped[str] = mapped_column(String(64))
    parts: Mapped[object] = mapped_column(Json)


class CalibrationRow(Base):
    """What steps of an engine cost on an idle machine, in one configuration.

    ``pinned`` is the digest of the configuration with speculation off; ``body`` holds step,
    draft and catch-up times.
    """

    __tablename__ = "calibrations"
    __table_args__ = (Unique("engine", "pinned"),)

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    pinned: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    body: Mapped[object] = mapped_column(Json)


class CounterfactualRow(Base):
    """What a lookup drafter would have got accepted on a page of captured answers.

    One row a route, Setting and sampling; ``seq`` is the last sequence number of the page.
    """

    __tablename__ = "counterfactuals"
    __table_args__ = (
        Unique("cursor", "seq", "place"),
        Index("ix_counterfactuals_engine_at", "engine", "at_s"),
    )

    id: Mapped[int] = key_column()
    cursor: Mapped[int] = mapped_column(BigKey, ForeignKey("cursors.id"))
    seq: Mapped[int] = mapped_column(BigKey)
    place: Mapped[int] = mapped_column(Integer)
    engine: Mapped[str] = mapped_column(String(64))
    at_s: Mapped[float] = mapped_column(Float)
    route: Mapped[str] = mapped_column(String(64))
    setting: Mapped[str] = mapped_column(String(16), ForeignKey("settings.key"))
    is_greedy: Mapped[bool | None] = mapped_column(Boolean)
    passes: Mapped[int] = mapped_column(BigKey)
    verify_passes: Mapped[int] = mapped_column(BigKey)
    drafted: Mapped[int] = mapped_column(BigKey)
    accepted: Mapped[int] = mapped_column(BigKey)
    tokens: Mapped[int] = mapped_column(BigKey)
    attempts: Mapped[object] = mapped_column(Json)
    accepts: Mapped[object] = mapped_column(Json)
