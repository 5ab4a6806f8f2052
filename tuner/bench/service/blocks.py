"""A block: one arm in force at one level of traffic in one round, and what it delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from collectors.records import DecodeStep, LoadLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of traffic.

    Attributes:
        concurrency: requests under way at most.
        is_surge: they arrive as in the demo's surge; otherwise each that ends is followed at once.
    """

    concurrency: int
    is_surge: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return "surge" if self.is_surge else str(self.concurrency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The part of a block that counts.

    Beside neighbours a block has two spans, one in a burst of theirs and one in a pause.

    Attributes:
        round: number of the round, from 0.
        level: of the traffic.
        arm: in force.
        plan_digest: of its plan.
        spans: start, after settling, and end of each part, in Unix seconds.
    """

    round: int
    level: Level
    arm: str
    plan_digest: str
    spans: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> float:
        """Length of all spans."""
        return sum(end_s - start_s for start_s, end_s in self.spans)

    def holds(self, at_s: float) -> bool:
        """Return whether a moment lies in a span."""
        return any(start_s <= at_s < end_s for start_s, end_s in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """What one route did at one load level in a block.

    Attributes:
        tokens: delivered.
        passes: target passes of its rows.
        row_s: rows times seconds of their steps, prefill in the same steps included.
    """

    tokens: int = 0
    passes: int = 0
    row_s: float = 0.0

    def plus(self, tokens: int, rows: int, step_s: float) -> Decoding:
        """Return the sum with one step's group."""
        return Decoding(
            tokens=self.tokens + tokens,
            passes=self.passes + rows,
            row_s=self.row_s + rows * step_s,
        )

    @property
    def tokens_per_s(self) -> float | None:
        """Of one request while it decodes; None where nothing was delivered."""
        return self.tokens / self.row_s if self.tokens and self.row_s > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A measured block.

    Attributes:
        stretch: what was measured.
        digests: plans that its steps ran under, as the engine says.
        tokens: delivered by all its decoding steps. The one token that a request gets from the
            pass that reads its prompt is in no arm's count.
        decoding: by route and load level of the step.
    """

    stretch: Stretch
    digests: frozenset[str]
    tokens: int
    decoding: Mapping[tuple[str, LoadLevel], Decoding]

    @property
    def is_valid(self) -> bool:
        """True where tokens came and every step ran under the arm's own plan."""
        return self.tokens > 0 and self.digests == {self.stretch.plan_digest}

    @property
    def tokens_per_s(self) -> float:
        """Of the whole engine, by wall time."""
        return self.tokens / self.stretch.seconds


def block_of(stretch: Stretch, steps: Iterable[DecodeStep]) -> Block:
    """Count the live steps that ended within a stretch."""
    within = [step for step in steps if stretch.holds(step.at)]
    decoding: dict[tuple[str, LoadLevel], Decoding] = {}
    for step in within:
        for group in step.groups:
            if not group.is_shadow:
                place = (group.route, step.load)
                before = decoding.get(place, Decoding())
                decoding[place] = before.plus(group.tokens, group.rows, step.step_s)
    return Block(
        stretch=stretch,
        digests=frozenset(step.plan_digest for step in within),
        tokens=sum(one.tokens for one in decoding.values()),
        decoding=decoding,
    )
