"""The tables of what replays and reports show route by route, and of evaluations under way.

They are part of ``tuner.store.schema``, which is where to import them from.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, String, Text, text
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.orm import Mapped, mapped_column

from tuner.store.columns import BigKey, Json, UtcTime
from tuner.store.table_base import Base, key_column, parent_column


class ReplayRouteRow(Base):
    """What the pairs of one route at one load level show; ``time_ratio`` is null with too few."""

    __tablename__ = "replay_routes"
    __table_args__ = (Unique("replay", "route", "load"),)

    id: Mapped[int] = key_column()
    replay: Mapped[int] = parent_column("replays.id")
    route: Mapped[str] = mapped_column(String(64))
    load: Mapped[str] = mapped_column(String(16))
    pairs: Mapped[int] = mapped_column(Integer)
    clusters: Mapped[int] = mapped_column(Integer)
    needed_pairs: Mapped[int] = mapped_column(Integer)
    precision: Mapped[float] = mapped_column(Float)
    time_ratio: Mapped[object] = mapped_column(Json)
    verdict: Mapped[str] = mapped_column(String(16))


class DivergenceRouteRow(Base):
    """What a divergence report says of one route."""

    __tablename__ = "divergence_routes"
    __table_args__ = (Unique("divergence", "route"),)

    id: Mapped[int] = key_column()
    divergence: Mapped[int] = parent_column("divergences.id")
    route: Mapped[str] = mapped_column(String(64))
    is_passing: Mapped[bool] = mapped_column(Boolean)
    report: Mapped[object] = mapped_column(Json)


class GateRunRow(Base):
    """An evaluation of one Setting on one route, asked for or under way; one is open at most."""

    __tablename__ = "gate_runs"
    __table_args__ = (
        Index(
            "uq_gate_runs_open",
            "engine",
            "route",
            "digest",
            unique=True,
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
    )

    id: Mapped[int] = key_column()
    engine: Mapped[str] = mapped_column(String(64))
    route: Mapped[str] = mapped_column(String(64))
    digest: Mapped[str] = mapped_column(
        String(64), ForeignKey("pinned_configs.digest", ondelete="CASCADE"), index=True
    )
    state: Mapped[str] = mapped_column(String(16))
    phase: Mapped[str] = mapped_column(String(16))
    done: Mapped[int] = mapped_column(Integer)
    total: Mapped[int] = mapped_column(Integer)
    who: Mapped[str] = mapped_column(Text)
    asked_at: Mapped[datetime] = mapped_column(UtcTime)
    moved_at: Mapped[datetime] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    error: Mapped[str | None] = mapped_column(Text)
    evaluation: Mapped[int | None] = mapped_column(
        BigKey, ForeignKey("evaluations.id", ondelete="SET NULL")
    )
