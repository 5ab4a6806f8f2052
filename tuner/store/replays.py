"""Shadow replays: captured requests on two pinned configurations, paired request by request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Self

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from collectors.records import Setting
from collectors.records.parsing import JsonObject, as_object, integer, number
from policy.types import Interval
from tuner.errors import NotFound
from tuner.store.coding import interval_from_list, interval_to_list
from tuner.store.schema import ReplayPairRow, ReplayRow
from tuner.store.statements import changed_rows, insert_rows


class ReplayState(StrEnum):
    """How far a replay got."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRun:
    """One request on one arm.

    Attributes:
        tokens: tokens delivered.
        seconds: from sending the request to its last token.
        ttft_s: from sending to the first token; None where it was not seen.
        passes: target passes after prefill; None where the engine did not say.
        drafted: draft tokens verified; None likewise.
        accepted: draft tokens kept; None likewise.
        setting: Setting that was in force, read back; None where it could not be read.
    """

    tokens: int
    seconds: float
    ttft_s: float | None = None
    passes: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    setting: Setting | None = None

    @property
    def decode_s_per_token(self) -> float | None:
        """Seconds a token after the first, so that neither prompt nor prefix cache counts.

        None below two tokens, or where the first one was not seen.
        """
        if self.tokens < 2 or self.ttft_s is None or self.seconds <= self.ttft_s:
            return None
        return (self.seconds - self.ttft_s) / (self.tokens - 1)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second of request time; None without tokens or time."""
        return self.tokens / self.seconds if self.tokens and self.seconds > 0 else None

    def to_dict(self) -> dict[str, object]:
        """Return the stored form."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain["setting"] = None if self.setting is None else self.setting.to_dict()
        return plain

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the stored form."""
        setting = data.get("setting")
        return cls(
            tokens=integer(data, "tokens"),
            seconds=number(data, "seconds"),
            ttft_s=None if data.get("ttft_s") is None else number(data, "ttft_s"),
            passes=_maybe(data, "passes"),
            drafted=_maybe(data, "drafted"),
            accepted=_maybe(data, "accepted"),
            setting=None if setting is None else Setting.from_dict(as_object(setting, "setting")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPair:
    """One captured request on both arms.

    Attributes:
        place: order within the replay, from 0.
        request_id: id of the captured request.
        route: its route.
        base: the first arm.
        other: the second arm.
        void_reason: why the pair does not count; None where it does.
        rows: requests of the replay on the engine at once, this one included.
        conversation: id of the first request of its conversation, as far as prompts tell.
    """

    place: int
    request_id: str
    route: str
    base: ArmRun
    other: ArmRun
    void_reason: str | None = None
    rows: int = 1
    conversation: str = ""

    @property
    def token_times_s(self) -> tuple[float, float] | None:
        """Seconds a token of both arms, by the same measure; None where the pair is void.

        After the first token where both arms showed it, else over the whole request.
        """
        if self.void_reason is not None:
            return None
        decoding = (self.base.decode_s_per_token, self.other.decode_s_per_token)
        if decoding[0] is not None and decoding[1] is not None:
            return decoding[0], decoding[1]
        base, other = self.base.tokens_per_s, self.other.tokens_per_s
        return None if base is None or other is None else (1 / base, 1 / other)

    @property
    def ratio(self) -> float | None:
        """The other arm's speed over the base's, token by token; None where the pair is void."""
        times = self.token_times_s
        return None if times is None else times[0] / times[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """What a replay showed over all its routes together; no route is judged by it.

    Attributes:
        pairs: pairs that count.
        void_pairs: pairs that do not.
        planned_pairs: pairs it makes at most; None where that was not noted.
        speedup: geometric mean of the ratios with its 90 % interval; None with too few pairs.
        base_tokens_per_pass: tokens per target pass of the base; None where unknown.
        other_tokens_per_pass: the same of the other arm.
    """

    pairs: int = 0
    void_pairs: int = 0
    planned_pairs: int | None = None
    speedup: Interval | None = None
    base_tokens_per_pass: float | None = None
    other_tokens_per_pass: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the stored form."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain["speedup"] = None if self.speedup is None else interval_to_list(self.speedup)
        return plain

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the stored form."""
        speedup = data.get("speedup")
        arms = ("base_tokens_per_pass", "other_tokens_per_pass")
        rates = [None if data.get(name) is None else number(data, name) for name in arms]
        return cls(
            pairs=integer(data, "pairs", 0),
            void_pairs=integer(data, "void_pairs", 0),
            planned_pairs=_maybe(data, "planned_pairs"),
            speedup=None if speedup is None else interval_from_list(speedup),
            base_tokens_per_pass=rates[0],
            other_tokens_per_pass=rates[1],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReplay:
    """A replay without its pairs.

    Attributes:
        id: number.
        engine: engine it ran on.
        route: the only route replayed; None for all.
        base: digest of the first pinned configuration.
        other: digest of the second.
        state: how far it got.
        started_at: when it began.
        ended_at: when it ended; None while it runs.
        options: how it was run.
        summary: what it showed.
        error: why it failed, one line; None where it did not.
    """

    id: int
    engine: str
    route: str | None
    base: str
    other: str
    state: ReplayState
    started_at: datetime
    ended_at: datetime | None
    options: JsonObject
    summary: ReplaySummary
    error: str | None


def start(
    session: Session,
    *,
    engine: str,
    route: str | None,
    base: str,
    other: str,
    options: JsonObject,
    at: datetime,
) -> int:
    """Open a replay of two configurations that are in ``pinned`` already; return its number."""
    row = ReplayRow(
        engine=engine,
        route=route,
        base=base,
        other=other,
        state=ReplayState.RUNNING,
        started_at=at,
        options=dict(options),
        summary=ReplaySummary().to_dict(),
    )
    session.add(row)
    session.flush()
    return row.id


def add_pairs(session: Session, number: int, pairs: Sequence[ReplayPair]) -> None:
    """Store pairs of a replay."""
    rows = [
        {
            "replay": number,
            "place": pair.place,
            "request_id": pair.request_id,
            "route": pair.route,
            "base": pair.base.to_dict(),
            "other": pair.other.to_dict(),
            "void_reason": pair.void_reason,
            "rows": pair.rows,
            "conversation": pair.conversation,
        }
        for pair in pairs
    ]
    insert_rows(session, ReplayPairRow, rows)


def note_progress(session: Session, number: int, summary: ReplaySummary) -> None:
    """Note how far a replay is that is still running."""
    changed_rows(
        session,
        update(ReplayRow)
        .where(ReplayRow.id == number, ReplayRow.state == ReplayState.RUNNING)
        .values(summary=summary.to_dict()),
    )


def finish(
    session: Session,
    number: int,
    *,
    state: ReplayState,
    summary: ReplaySummary,
    at: datetime,
    error: str | None = None,
) -> None:
    """Close a replay that is still running."""
    changed_rows(
        session,
        update(ReplayRow)
        .where(ReplayRow.id == number, ReplayRow.state == ReplayState.RUNNING)
        .values(state=state, summary=summary.to_dict(), ended_at=at, error=error),
    )


def fail_open(session: Session, started_before: datetime, at: datetime) -> int:
    """Close replays that began before a moment and never ended; return how many there were."""
    return changed_rows(
        session,
        update(ReplayRow)
        .where(ReplayRow.state == ReplayState.RUNNING, ReplayRow.started_at < started_before)
        .values(state=ReplayState.FAILED, ended_at=at, error="its service ended in the middle"),
    )


def one(session: Session, number: int) -> StoredReplay:
    """Return one replay.

    Raises:
        NotFound: there is none with this number.
    """
    row = session.get(ReplayRow, number, populate_existing=True)
    if row is None:
        raise NotFound(f"there is no replay {number}; `spectuner replay` makes one")
    return _stored(row)


def listed(
    session: Session, *, other: str | None = None, limit: int = 200
) -> tuple[StoredReplay, ...]:
    """Return replays, newest first; with a digest, those of that second configuration."""
    query = select(ReplayRow).order_by(ReplayRow.id.desc()).limit(limit)
    if other is not None:
        query = query.where(ReplayRow.other == other)
    return tuple(_stored(row) for row in session.scalars(query))


def pairs(session: Session, number: int) -> tuple[ReplayPair, ...]:
    """Return the pairs of a replay, in order."""
    rows = session.scalars(
        select(ReplayPairRow).where(ReplayPairRow.replay == number).order_by(ReplayPairRow.place)
    )
    return tuple(_pair(row) for row in rows)


def _pair(row: ReplayPairRow) -> ReplayPair:
    return ReplayPair(
        place=row.place,
        request_id=row.request_id,
        route=row.route,
        base=ArmRun.from_dict(as_object(row.base, "base")),
        other=ArmRun.from_dict(as_object(row.other, "other")),
        void_reason=row.void_reason,
        rows=row.rows,
        conversation=row.conversation,
    )


def _stored(row: ReplayRow) -> StoredReplay:
    return StoredReplay(
        id=row.id,
        engine=row.engine,
        route=row.route,
        base=row.base,
        other=row.other,
        state=ReplayState(row.state),
        started_at=row.started_at,
        ended_at=row.ended_at,
        options=as_object(row.options, f"options of replay {row.id}"),
        summary=ReplaySummary.from_dict(as_object(row.summary, f"summary of replay {row.id}")),
        error=row.error,
    )


def _maybe(data: JsonObject, key: str) -> int | None:
    return None if data.get(key) is None else integer(data, key)
