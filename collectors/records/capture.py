"""A request kept for replay. Exists only where capture is on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from collectors.errors import InvalidRecord
from collectors.records.parsing import JsonObject, as_object, integer, items, number, text


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRequest:
    """One request as it reached the engine.

    Attributes:
        seq: place in the capture journal of this boot, from 1.
        at: arrival, Unix seconds.
        request_id: id given to the client.
        route: route name.
        prompt: the prompt as text, after the chat template.
        prompt_ids: the prompt as token ids.
        sampling: sampling parameters of the request, in OpenAI's names.
        completion_tokens: tokens it was answered with.
        output_ids: the answer as token ids; never stored, empty where it is not known.
    """

    seq: int
    at: float
    request_id: str
    route: str
    prompt: str
    prompt_ids: tuple[int, ...]
    sampling: Mapping[str, object] = field(default_factory=dict)
    completion_tokens: int = 0
    output_ids: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        plain: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        plain["prompt_ids"] = list(self.prompt_ids)
        plain["output_ids"] = list(self.output_ids)
        plain["sampling"] = dict(self.sampling)
        return plain

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Read the wire form."""
        return cls(
            seq=integer(data, "seq"),
            at=number(data, "at"),
            request_id=text(data, "request_id"),
            route=text(data, "route"),
            prompt=text(data, "prompt"),
            prompt_ids=tuple(_token_id(value) for value in items(data, "prompt_ids")),
            sampling=dict(as_object(data.get("sampling", {}), "sampling")),
            completion_tokens=integer(data, "completion_tokens", 0),
            output_ids=tuple(_token_id(value) for value in items(data, "output_ids")),
        )


def _token_id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRecord(f"a token id must be an integer, got {value!r}")
    return value
