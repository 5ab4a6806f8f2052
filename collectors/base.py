"""What every source of facts offers, and the records that only its protocol knows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self

from collectors.errors import InvalidRecord
from collectors.records import (
    AcceptanceRule,
    CapturedRequest,
    EngineSample,
    JournalPage,
    Method,
    PinnedConfig,
    Plan,
    Setting,
)
from collectors.records.parsing import (
    JsonObject,
    as_object,
    integer,
    items,
    member,
    require,
    text,
    truth,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePage:
    """Captured requests after a cursor, oldest first.

    The engine keeps a sample, so numbers may jump; what is missing up to ``first_seq`` was
    overwritten.

    Attributes:
        boot_id: changes with each start of the engine.
        first_seq: oldest number still held.
        last_seq: newest number given out; 0 before the first.
        records: what was asked for, numbers rising.
    """

    boot_id: str
    first_seq: int
    last_seq: int
    records: tuple[CapturedRequest, ...] = ()

    def __post_init__(self) -> None:
        """Numbers rise within a page."""
        numbers = [record.seq for record in self.records]
        is_rising = all(before < after for before, after in pairwise(numbers))
        require(is_rising, f"capture page of boot {self.boot_id} is out of order: {numbers}")

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form."""
        return cls(
            boot_id=text(data, "boot_id"),
            first_seq=integer(data, "first_seq"),
            last_seq=integer(data, "last_seq"),
            records=tuple(
                CapturedRequest.from_dict(as_object(entry, "captured request"))
                for entry in items(data, "records")
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodCapability:
    """One drafting method of an engine.

    Attributes:
        method: the method.
        max_k: longest draft it can make, in tokens.
        max_tree_nodes: draft tokens of a tree at most; 0 where it drafts chains only.
        can_adapt: True where the engine can end its drafts where they no longer pay.
        drafter: id of its weights; empty where it has none.
        drafter_hash: sha256 over them; empty likewise.
    """

    method: Method
    max_k: int
    max_tree_nodes: int = 0
    can_adapt: bool = False
    drafter: str = ""
    drafter_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do.

    Attributes:
        engine: engine name and kind.
        version: its version.
        boot_id: changes with each start.
        model: model as served.
        methods: drafting methods it has.
        rules: acceptance rules it has.
        routes: route names it takes; None where it takes any.
        max_rows: batch cap, in sequences.
        max_context_tokens: longest prompt and answer together.
        pinned: its configuration with speculation off.
    """

    engine: str
    version: str
    boot_id: str
    model: str
    methods: tuple[MethodCapability, ...]
    rules: tuple[AcceptanceRule, ...]
    routes: tuple[str, ...] | None
    max_rows: int
    max_context_tokens: int
    pinned: PinnedConfig

    def unsupported_reason(self, setting: Setting) -> str | None:
        """Return why a Setting cannot run on this engine; None where it can."""
        if setting.method is Method.OFF:
            return None
        found = [one for one in self.methods if one.method is setting.method]
        if not found:
            known = ", ".join(sorted(one.method for one in self.methods)) or "none"
            return f"engine {self.engine} has no {setting.method}; it has {known}"
        longest = max(one.max_k for one in found)
        if setting.k > longest:
            return f"k {setting.k} is beyond {longest}, the most {setting.method} drafts"
        largest = max(one.max_tree_nodes for one in found)
        if setting.tree_nodes > largest:
            return f"a tree of {setting.tree_nodes} is beyond {largest}, the most it drafts"
        if setting.is_adaptive and not any(one.can_adapt for one in found):
            return f"engine {self.engine} has no adaptive mode for {setting.method}; fix its k"
        drafters = [one.drafter for one in found]
        if setting.drafter and setting.drafter not in drafters:
            return f"drafter {setting.drafter!r} is not loaded; loaded: {', '.join(drafters)!r}"
        if setting.rule not in self.rules:
            return f"engine {self.engine} has no rule {setting.rule}"
        return None

    def pinned_at(self, setting: Setting) -> PinnedConfig:
        """Return the engine's configuration at a Setting, drafter weights included."""
        hashes = [
            one.drafter_hash
            for one in self.methods
            if one.method is setting.method and setting.drafter in ("", one.drafter)
        ]
        return self.pinned.with_setting(setting, hashes[0] if hashes else "")

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form; keys that are not needed here are left alone."""
        routes = data.get("routes")
        return cls(
            engine=text(data, "engine"),
            version=text(data, "version"),
            boot_id=text(data, "boot_id"),
            model=text(data, "model"),
            methods=tuple(
                _method(as_object(entry, "method capability")) for entry in items(data, "methods")
            ),
            rules=tuple(
                member(AcceptanceRule, _string(rule, "rule"), "rule")
                for rule in items(data, "rules")
            ),
            routes=(
                None
                if routes is None
                else tuple(_string(route, "route") for route in items(data, "routes"))
            ),
            max_rows=integer(data, "max_rows"),
            max_context_tokens=integer(data, "max_context_tokens"),
            pinned=PinnedConfig.from_dict(as_object(data.get("pinned"), "pinned")),
        )


class Collector(Protocol):
    """A source with a numbered journal.

    Every method raises SourceUnreachable (try again), SourceRefused (somebody must change
    something) or InvalidRecord (the message names the record).
    """

    @property
    def engine(self) -> str:
        """Name of the engine, as configured."""

    def steps(self, after: int, limit: int, boot_id: str | None = None) -> JournalPage:
        """Return journal records after a number; with another boot's id, from the start."""

    def captures(self, after: int, limit: int) -> CapturePage:
        """Return captured requests after a number."""

    def load(self) -> EngineSample:
        """Return what the engine says of itself now."""

    def capabilities(self) -> Capabilities:
        """Return what the engine can do."""

    def plan(self) -> Plan:
        """Return the plan in force."""


def _method(data: JsonObject) -> MethodCapability:
    return MethodCapability(
        method=member(Method, text(data, "method"), "method"),
        max_k=integer(data, "max_k"),
        max_tree_nodes=integer(data, "max_tree_nodes", 0),
        can_adapt=truth(data, "can_adapt"),
        drafter=text(data, "drafter", ""),
        drafter_hash=text(data, "drafter_hash", ""),
    )


def _string(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidRecord(f"{what} must be a string, got {value!r}")
    return value
