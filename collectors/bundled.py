"""The bundled engine, read by cursor pull over HTTP."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.base import Capabilities, CapturePage
from collectors.errors import InvalidRecord
from collectors.http import EngineAddress
from collectors.records import EngineSample, JournalPage, Plan
from collectors.records.parsing import JsonObject, integer, items, number, text

PAGE_LIMIT = 5000
"""Most journal records the engine gives at once."""

CAPTURE_PAGE_LIMIT = 1000
"""Most captured requests the engine gives at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledCollector:
    """Reads journal, captures, load, capabilities and plan of the bundled engine.

    Attributes:
        engine: name of the engine, as configured.
        address: where it is.
    """

    engine: str
    address: EngineAddress

    def steps(self, after: int, limit: int, boot_id: str | None = None) -> JournalPage:
        """Return journal records after a number; with another boot's id, from the start.

        Raises:
            InvalidRecord: a record means nothing; the message names its number.
            SourceUnreachable: the engine does not answer; try again.
            SourceRefused: the engine refused.
        """
        params: dict[str, str | int] = {"after": after, "limit": min(limit, PAGE_LIMIT)}
        if boot_id is not None:
            params["boot_id"] = boot_id
        data = self.address.get("/spec/steps", params)
        try:
            return JournalPage.from_dict(data)
        except InvalidRecord as error:
            raise InvalidRecord(f"{self.engine} journal: {_first_bad(data, error)}") from error

    def captures(self, after: int, limit: int) -> CapturePage:
        """Return captured requests after a number.

        Raises:
            InvalidRecord: a record means nothing.
            SourceUnreachable: the engine does not answer; try again.
            SourceRefused: the engine refused.
        """
        limit = min(limit, CAPTURE_PAGE_LIMIT)
        data = self.address.get("/spec/captures", {"after": after, "limit": limit})
        return CapturePage.from_dict(data)

    def load(self) -> EngineSample:
        """Return what the engine says of itself now."""
        data = self.address.get("/spec/load")
        return EngineSample(
            at=number(data, "at"),
            engine=self.engine,
            boot_id=text(data, "boot_id"),
            running=integer(data, "running"),
            waiting=integer(data, "waiting"),
            kv_used_ratio=number(data, "kv_used_ratio"),
            plan_digest=text(data, "plan_digest"),
        )

    def capabilities(self) -> Capabilities:
        """Return what the engine can do."""
        return Capabilities.from_dict(self.address.get("/spec/capabilities"))

    def plan(self) -> Plan:
        """Return the plan in force."""
        return Plan.from_dict(self.address.get("/spec/plan"))


def _first_bad(data: JsonObject, error: InvalidRecord) -> str:
    """Name the first record of a page that cannot be read."""
    for entry in items(data, "records"):
        page = {"boot_id": "", "first_seq": 1, "last_seq": 1, "records": [entry]}
        try:
            JournalPage.from_dict(page)
        except InvalidRecord as reason:
            number_ = entry.get("seq") if isinstance(entry, dict) else None
            return f"record {number_} is invalid: {reason}"
    return str(error)
