"""How long the next draft of a row shall be, by what became of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.engine.drafters.base import DraftAsk

_MORE, _LESS = 2, 1


class ScheduleKind(StrEnum):
    """How draft lengths follow from outcomes.

    ``constant`` takes the Setting's k each time. ``heuristic`` starts there and drafts two more
    tokens after a draft that was kept whole, one less after another, between 1 and k.
    Source: transformers, ``num_assistant_tokens_schedule``, there without an upper end.
    """

    CONSTANT = "constant"
    HEURISTIC = "heuristic"


@dataclass(slots=True)
class _Last:
    """A row's last draft: its length, its tokens, and how many were committed before it."""

    length: int
    token_ids: Sequence[int] = ()
    num_committed: int = 0

    def was_kept(self, committed: Sequence[int]) -> bool:
        end = self.num_committed + len(self.token_ids)
        return list(self.token_ids) == list(committed[self.num_committed : end])


class DraftSchedule:
    """Draft lengths of all rows, by slot."""

    def __init__(self, kind: ScheduleKind = ScheduleKind.CONSTANT) -> None:
        self._kind = kind
        self._last: dict[int, _Last] = {}

    def length(self, ask: DraftAsk) -> int:
        """Return how many tokens to draft, 1 to k; k where a price ends the draft."""
        if self._kind is ScheduleKind.CONSTANT or ask.outlook is not None:
            return ask.k
        last = self._last.setdefault(ask.slot, _Last(ask.setting.k))
        if last.token_ids:
            step = _MORE if last.was_kept(ask.token_ids) else -_LESS
            last.length = max(1, min(last.length + step, ask.setting.k))
        return min(last.length, ask.k)

    def note(self, ask: DraftAsk, token_ids: Sequence[int]) -> None:
        """Remember the draft that was made for an ask."""
        if self._kind is ScheduleKind.HEURISTIC and ask.outlook is None:
            last = self._last[ask.slot]
            last.token_ids, last.num_committed = token_ids, len(ask.token_ids)

    def move(self, source: int, target: int) -> None:
        """Carry what is known of one slot over to another."""
        self.release(target)
        if source in self._last:
            self._last[target] = self._last.pop(source)

    def release(self, slot: int) -> None:
        """Forget a slot."""
        self._last.pop(slot, None)
