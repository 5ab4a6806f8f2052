"""One page of a numbered journal, as read by cursor pull."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Self, TypeAlias

from collectors.errors import InvalidRecord
from collectors.records.parsing import JsonObject, as_object, integer, items, require, text
from collectors.records.request import RequestTrace
from collectors.records.step import DecodeStep

JournalRecord: TypeAlias = DecodeStep | RequestTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPage:
    """Records after a cursor, oldest first.

    Attributes:
        boot_id: changes with each start of the writer; sequence numbers restart at 1 with it.
        first_seq: oldest sequence number still held; 1 while nothing was overwritten.
        last_seq: newest sequence number written; 0 before the first.
        records: what was asked for, in order, without gaps.
    """

    boot_id: str
    first_seq: int
    last_seq: int
    records: tuple[JournalRecord, ...] = ()

    def __post_init__(self) -> None:
        """Sequence numbers rise by one within a page."""
        numbers = [record.seq for record in self.records]
        is_dense = all(after == before + 1 for before, after in pairwise(numbers))
        require(is_dense, f"journal page of boot {self.boot_id} has a gap: {numbers}")

    def lost_after(self, cursor: int) -> int:
        """Return how many records after a cursor were overwritten before this read."""
        return max(0, self.first_seq - 1 - cursor)

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        return {
            "boot_id": self.boot_id,
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "records": [record.to_dict() for record in self.records],
        }

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form."""
        return cls(
            boot_id=text(data, "boot_id"),
            first_seq=integer(data, "first_seq"),
            last_seq=integer(data, "last_seq"),
            records=tuple(_record(entry) for entry in items(data, "records")),
        )


def _record(entry: object) -> JournalRecord:
    data = as_object(entry, "journal record")
    kind = text(data, "kind")
    if kind == "step":
        return DecodeStep.from_dict(data)
    if kind == "request":
        return RequestTrace.from_dict(data)
    raise InvalidRecord(f"unknown journal record kind {kind!r}; known: step, request")
