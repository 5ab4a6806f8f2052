"""The engine's own account of its steps, read beside the service."""

from __future__ import annotations

from dataclasses import dataclass, field

from collectors.base import Collector
from collectors.bundled import PAGE_LIMIT
from collectors.records import DecodeStep
from tuner.errors import TunerError


class JournalBroken(TunerError):
    """Steps that were to be measured are missing; the message says why."""


@dataclass(slots=True, kw_only=True)
class JournalReader:
    """Reads each step once.

    Attributes:
        collector: reads the engine.
        boot_id: of the engine that is measured.
        cursor: last number read.
    """

    collector: Collector
    boot_id: str = field(default="", init=False)
    cursor: int = field(default=0, init=False)

    def skip(self) -> None:
        """Begin after what is there already."""
        page = self.collector.steps(0, 1)
        self.boot_id, self.cursor = page.boot_id, page.last_seq

    def steps(self) -> tuple[DecodeStep, ...]:
        """Return the steps since the last read.

        Raises:
            JournalBroken: the engine restarted or its journal overran.
            SourceUnreachable: the engine does not answer.
        """
        found: list[DecodeStep] = []
        while True:
            page = self.collector.steps(self.cursor, PAGE_LIMIT)
            if page.boot_id != self.boot_id:
                raise JournalBroken("the engine restarted while it was measured; run again")
            lost = page.lost_after(self.cursor)
            if lost:
                raise JournalBroken(f"{lost} journal records were overwritten; shorten --block-s")
            found += [record for record in page.records if isinstance(record, DecodeStep)]
            if not page.records:
                return tuple(found)
            self.cursor = page.records[-1].seq
