"""The exact configuration under which an output was produced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from collectors.records.parsing import JsonObject, as_object, digest_of, integer, text
from collectors.records.setting import OFF, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedConfig:
    """Everything that could change an output.

    Attributes:
        model: model id as served.
        weights_hash: sha256 over the target's weights.
        tokenizer_hash: sha256 over the tokenizer.
        dtype: such as ``float32``.
        device: such as ``cpu``.
        engine: engine name and version.
        versions: library name to version.
        attention_backend: such as ``sdpa``.
        max_rows: batch cap, in sequences.
        drafting: what the engine's drafters were told beside their weights, such as
            ``draft_schedule``; which random numbers a seeded answer uses follows from what is
            drafted. Empty for an engine that does not say.
        setting: the Setting.
        drafter_hash: sha256 over the drafter's weights; empty for methods without weights.
        sampling: sampling parameters that are forced; empty where each request brings its own.
    """

    model: str
    weights_hash: str
    tokenizer_hash: str
    dtype: str
    device: str
    engine: str
    versions: Mapping[str, str] = field(default_factory=dict)
    attention_backend: str
    max_rows: int
    drafting: Mapping[str, object] = field(default_factory=dict)
    setting: Setting = OFF
    drafter_hash: str = ""
    sampling: Mapping[str, object] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Sha256 over the canonical JSON."""
        return digest_of(self.to_dict())

    def with_setting(self, setting: Setting, drafter_hash: str) -> Self:
        """Return the same configuration at another Setting."""
        return replace(self, setting=setting, drafter_hash=drafter_hash)

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        plain: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        plain["versions"] = dict(self.versions)
        plain["setting"] = self.setting.to_dict()
        plain["sampling"] = dict(self.sampling)
        if not plain.pop("drafting"):
            return plain  # as before the field was there, so that digests stay what they were
        return {**plain, "drafting": dict(self.drafting)}

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form."""
        versions = as_object(data.get("versions", {}), "versions")
        return cls(
            model=text(data, "model"),
            weights_hash=text(data, "weights_hash"),
            tokenizer_hash=text(data, "tokenizer_hash"),
            dtype=text(data, "dtype"),
            device=text(data, "device"),
            engine=text(data, "engine"),
            versions={name: text(versions, name) for name in versions},
            attention_backend=text(data, "attention_backend"),
            max_rows=integer(data, "max_rows"),
            drafting=dict(as_object(data.get("drafting", {}), "drafting")),
            setting=Setting.from_dict(as_object(data.get("setting", {}), "setting")),
            drafter_hash=text(data, "drafter_hash", ""),
            sampling=dict(as_object(data.get("sampling", {}), "sampling")),
        )
