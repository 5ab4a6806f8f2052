"""What one finished request saw, and the mergeable latency histogram it carries."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from collectors.errors import InvalidRecord
from collectors.records.parsing import (
    JsonObject,
    as_object,
    integer,
    items,
    member,
    number,
    require,
    text,
    truth,
)
from collectors.records.plan import LoadLevel, load_level_named
from collectors.records.setting import Setting

LATENCY_BOUNDS_S = tuple(0.0001 * 1.25**step for step in range(64))
"""Upper bounds of the latency buckets, 0.1 ms to about 127 s, each 25 % above the last."""


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """Counts by latency bucket; sums of two are again a histogram.

    Attributes:
        counts: one per bound of LATENCY_BOUNDS_S and one for everything above the last.
        total_s: sum of all samples, in seconds.
    """

    counts: tuple[int, ...] = (0,) * (len(LATENCY_BOUNDS_S) + 1)
    total_s: float = 0.0

    def __post_init__(self) -> None:
        """One count per bucket, none negative."""
        require(
            len(self.counts) == len(LATENCY_BOUNDS_S) + 1 and min(self.counts) >= 0,
            f"a latency histogram has {len(LATENCY_BOUNDS_S) + 1} counts >= 0",
        )

    @classmethod
    def of(cls, samples_s: Iterable[float]) -> Self:
        """Count samples, in seconds."""
        counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        total_s = 0.0
        for sample in samples_s:
            counts[bisect.bisect_left(LATENCY_BOUNDS_S, sample)] += 1
            total_s += sample
        return cls(counts=tuple(counts), total_s=total_s)

    @property
    def num_samples(self) -> int:
        """How many samples were counted."""
        return sum(self.counts)

    def plus(self, other: LatencyHistogram) -> LatencyHistogram:
        """Return the histogram of both sample sets."""
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return LatencyHistogram(counts=counts, total_s=self.total_s + other.total_s)

    def quantile_s(self, share: float) -> float | None:
        """Return the upper bound of the bucket that holds a quantile, in seconds.

        None without samples; ``inf`` where the quantile lies above the last bound, which is to
        be shown as "> 127 s" and never as the bound itself.
        """
        rank = share * self.num_samples
        seen = 0
        for bound, count in zip((*LATENCY_BOUNDS_S, float("inf")), self.counts, strict=True):
            seen += count
            if count and seen >= rank:
                return bound
        return None

    def to_dict(self) -> dict[str, object]:
        """Return the wire form: non-empty buckets as [index, count]."""
        filled = [[index, count] for index, count in enumerate(self.counts) if count]
        return {"buckets": filled, "total_s": self.total_s}

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form."""
        counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        for bucket in items(data, "buckets"):
            if not isinstance(bucket, list | tuple) or len(bucket) != 2:
                raise InvalidRecord(f"a bucket must be [index, count], got {bucket!r}")
            named = {"index": bucket[0], "count": bucket[1]}
            index = integer(named, "index")
            require(0 <= index < len(counts), f"bucket index {index} is not in the histogram")
            counts[index] += integer(named, "count")
        return cls(counts=tuple(counts), total_s=number(data, "total_s", 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """One finished request.

    Attributes:
        seq: place in the journal of this boot, from 1.
        at: when it ended, Unix seconds.
        request_id: id given to the client.
        route: route name.
        setting: Setting at its last step.
        load: load level at its first token.
        is_shadow: True for replayed requests.
        temperature: sampling temperature; 0 is greedy.
        has_grammar: True where the answer was held to a grammar.
        prompt_tokens: prompt length, in tokens.
        completion_tokens: tokens delivered (G).
        passes: target passes after prefill (P).
        drafted: draft tokens verified (D).
        accepted: draft tokens kept (A).
        attempts: by draft position, passes that drafted it with all before it kept.
        accepts: by draft position, attempts that were kept.
        queue_s: seconds from arrival to admission.
        ttft_s: seconds from arrival to the first token; None when there was none.
        duration_s: seconds from arrival to the end.
        chunk_gaps: seconds between two deliveries of this request.
        finish_reason: why it ended.
    """

    seq: int
    at: float
    request_id: str
    route: str
    setting: Setting
    load: LoadLevel
    is_shadow: bool = False
    temperature: float = 0.0
    has_grammar: bool = False
    prompt_tokens: int
    completion_tokens: int
    passes: int
    drafted: int
    accepted: int
    attempts: tuple[int, ...] = ()
    accepts: tuple[int, ...] = ()
    queue_s: float
    ttft_s: float | None
    duration_s: float
    chunk_gaps: LatencyHistogram
    finish_reason: FinishReason

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first, in seconds; None below two tokens."""
        if self.ttft_s is None or self.completion_tokens < 2:
            return None
        return (self.duration_s - self.ttft_s) / (self.completion_tokens - 1)

    def to_dict(self) -> dict[str, object]:
        """Return the wire form, marked ``"kind": "request"``."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain["setting"] = self.setting.to_dict()
        plain["load"] = self.load.label
        plain["chunk_gaps"] = self.chunk_gaps.to_dict()
        plain["attempts"], plain["accepts"] = list(self.attempts), list(self.accepts)
        return {"kind": "request", **plain}

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form."""
        return cls(
            seq=integer(data, "seq"),
            at=number(data, "at"),
            request_id=text(data, "request_id"),
            route=text(data, "route"),
            setting=Setting.from_dict(as_object(data.get("setting"), "setting")),
            load=load_level_named(text(data, "load")),
            is_shadow=truth(data, "is_shadow"),
            temperature=number(data, "temperature", 0.0),
            has_grammar=truth(data, "has_grammar"),
            prompt_tokens=integer(data, "prompt_tokens"),
            completion_tokens=integer(data, "completion_tokens"),
            passes=integer(data, "passes"),
            drafted=integer(data, "drafted"),
            accepted=integer(data, "accepted"),
            attempts=_counts(data, "attempts"),
            accepts=_counts(data, "accepts"),
            queue_s=number(data, "queue_s"),
            ttft_s=None if data.get("ttft_s") is None else number(data, "ttft_s"),
            duration_s=number(data, "duration_s"),
            chunk_gaps=LatencyHistogram.from_dict(as_object(data.get("chunk_gaps"), "chunk_gaps")),
            finish_reason=member(FinishReason, text(data, "finish_reason"), "finish_reason"),
        )


def _counts(data: JsonObject, key: str) -> tuple[int, ...]:
    return tuple(integer({key: count}, key) for count in items(data, key))
