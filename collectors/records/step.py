"""What one step of the engine did: the fact from which everything else is counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
from collectors.records.plan import LoadLevel, load_level_of
from collectors.records.setting import Method, Setting


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class StepOutcome:
    """How many rows of a group drafted ``drafted`` tokens and kept ``accepted`` of them."""

    drafted: int
    accepted: int
    rows: int

    def __post_init__(self) -> None:
        """Only a run from the front can be kept."""
        require(
            0 <= self.accepted <= self.drafted and self.rows >= 1,
            f"outcome needs 0 <= accepted <= drafted and rows >= 1, got {self}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGroup:
    """The decoding rows of one step that share a route and a Setting.

    Attributes:
        route: route name.
        setting: the Setting these rows had in this step.
        is_shadow: True for replayed rows, which never count as live traffic.
        is_greedy: True where temperature was 0 for these rows.
        tokens: tokens delivered, after stops and limits cut the block.
        outcomes: rows by (drafted, accepted); rows that drafted nothing have (0, 0).
    """

    route: str
    setting: Setting
    is_shadow: bool = False
    is_greedy: bool = True
    tokens: int
    outcomes: tuple[StepOutcome, ...]

    @property
    def rows(self) -> int:
        """Target passes seen by these sequences (P)."""
        return sum(outcome.rows for outcome in self.outcomes)

    @property
    def drafted(self) -> int:
        """Draft tokens verified (D)."""
        return sum(outcome.drafted * outcome.rows for outcome in self.outcomes)

    @property
    def accepted(self) -> int:
        """Draft tokens kept (A), the bonus token not counted."""
        return sum(outcome.accepted * outcome.rows for outcome in self.outcomes)

    @property
    def verify_passes(self) -> int:
        """Passes that verified at least one draft token (V)."""
        return sum(outcome.rows for outcome in self.outcomes if outcome.drafted)

    def to_dict(self) -> dict[str, object]:
        """Return the wire form; outcomes are [drafted, accepted, rows]."""
        return {
            "route": self.route,
            "setting": self.setting.to_dict(),
            "is_shadow": self.is_shadow,
            "is_greedy": self.is_greedy,
            "tokens": self.tokens,
            "outcomes": [[o.drafted, o.accepted, o.rows] for o in self.outcomes],
        }

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form."""
        return cls(
            route=text(data, "route"),
            setting=Setting.from_dict(as_object(data.get("setting"), "setting")),
            is_shadow=truth(data, "is_shadow"),
            is_greedy=truth(data, "is_greedy", True),
            tokens=integer(data, "tokens"),
            outcomes=tuple(_outcome(triple) for triple in items(data, "outcomes")),
        )


def _outcome(triple: object) -> StepOutcome:
    if not isinstance(triple, list | tuple) or len(triple) != 3:
        raise InvalidRecord(f"outcome must be [drafted, accepted, rows], got {triple!r}")
    named = dict(zip(("drafted", "accepted", "rows"), triple, strict=True))
    return StepOutcome(
        drafted=integer(named, "drafted"),
        accepted=integer(named, "accepted"),
        rows=integer(named, "rows"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCost:
    """What drafting with one method cost in one step.

    Attributes:
        method: the drafting method.
        rows: rows that asked this method for a draft.
        tokens: draft tokens asked for, over all rows.
        depth: longest draft asked for, which is the number of sequential draft passes.
        seconds: wall time of drafting.
    """

    method: Method
    rows: int
    tokens: int
    depth: int
    seconds: float

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form."""
        return cls(
            method=member(Method, text(data, "method"), "method"),
            rows=integer(data, "rows"),
            tokens=integer(data, "tokens"),
            depth=integer(data, "depth"),
            seconds=number(data, "seconds"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """One step of the engine: draft, verify, commit.

    Attributes:
        seq: place in the journal of this boot, from 1.
        at: when the step ended, Unix seconds.
        plan_digest: digest of the plan in force.
        running: sequences in the batch.
        waiting: requests queued.
        positions: positions the target computed (prefill included).
        prefill_tokens: prompt positions among them.
        context_tokens: KV entries held by the batch before the step.
        verify_s: seconds in the target's forward pass.
        sample_s: seconds in sampling and verification.
        other_s: the rest of the step, in seconds.
        drafts: cost of drafting, one entry per method used.
        groups: decoding rows by route and Setting.
        is_reference: every row ran without a draft for comparison, though the plan has one draft.
    """

    seq: int
    at: float
    plan_digest: str
    running: int
    waiting: int
    positions: int
    prefill_tokens: int
    context_tokens: int
    verify_s: float
    sample_s: float
    other_s: float
    drafts: tuple[DraftCost, ...] = ()
    groups: tuple[StepGroup, ...] = ()
    is_reference: bool = False

    @property
    def draft_s(self) -> float:
        """Seconds spent drafting, all methods."""
        return sum(cost.seconds for cost in self.drafts)

    @property
    def step_s(self) -> float:
        """Seconds of the whole step."""
        return self.draft_s + self.verify_s + self.sample_s + self.other_s

    @property
    def load(self) -> LoadLevel:
        """Load level of the step."""
        return load_level_of(self.running)

    def to_dict(self) -> dict[str, object]:
        """Return the wire form, marked ``"kind": "step"``."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain["drafts"] = [cost.to_dict() for cost in self.drafts]
        plain["groups"] = [group.to_dict() for group in self.groups]
        return {"kind": "step", **plain}

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form."""
        return cls(
            seq=integer(data, "seq"),
            at=number(data, "at"),
            plan_digest=text(data, "plan_digest"),
            running=integer(data, "running"),
            waiting=integer(data, "waiting"),
            positions=integer(data, "positions"),
            prefill_tokens=integer(data, "prefill_tokens"),
            context_tokens=integer(data, "context_tokens"),
            verify_s=number(data, "verify_s"),
            sample_s=number(data, "sample_s"),
            other_s=number(data, "other_s"),
            drafts=tuple(
                DraftCost.from_dict(as_object(cost, "draft cost")) for cost in items(data, "drafts")
            ),
            groups=tuple(
                StepGroup.from_dict(as_object(group, "group")) for group in items(data, "groups")
            ),
            is_reference=truth(data, "is_reference"),
        )
