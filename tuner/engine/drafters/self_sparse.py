"""The target drafts for itself over a sparse view of its KV: the first entries and the latest.

Source: MagicDec, arXiv:2408.11049; the view is StreamingLLM's, arXiv:2309.17453. A draft pass reads
all weights but only the view's KV, so it pays beyond a critical context times batch only (section 3
there). Nothing is drafted where the KV left unread is less than a stated share of what a target
pass reads, nor before the view is at most half of a row's context: over a context that it holds
whole the draft equals the target and saves nothing.

The view is copied into small slots of its own, where keys keep the angles of their true positions.
The copy follows the target's entries and starts anew whenever it has outgrown its window by a
quarter, so that it costs five entries a token. What a draft writes lies behind what was copied and
is never taken for the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from collectors.records import MAX_DRAFT_LENGTH, Method
from tuner.engine.drafters.base import NO_DRAFT, Draft, DraftAsk, DrafterBase, TargetView
from tuner.engine.drafters.chain_growth import Chain, ChainGrowth
from tuner.engine.errors import EngineError
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.model.slots import KvSlots

MIN_SAVED_RATIO = 0.25
"""Least share of a target pass that a draft pass must save.

A draft token costs the rest, 1 - this, of a plain step, and is worth a step where it is kept: with
less saved, even k = 1 pays only where more than three in four are kept.
"""


@dataclass(frozen=True, slots=True)
class _Copied:
    """What a view holds of the target's entries: the sinks and [first, end)."""

    first: int
    end: int


class SelfSparseDrafter(DrafterBase):
    """Drafts with the target over views of its KV."""

    method = Method.SELF_SPARSE
    max_k = MAX_DRAFT_LENGTH

    def __init__(
        self,
        *,
        sink_tokens: int = 4,
        window_tokens: int = 256,
        min_saved_ratio: float = MIN_SAVED_RATIO,
    ) -> None:
        """Start without a target.

        Args:
            sink_tokens: first entries of the context that every view holds.
            window_tokens: latest entries that it holds at least.
            min_saved_ratio: nothing is drafted while a draft pass saves a smaller share of the
                bytes that a target pass over the same rows reads; 0 drafts always.
        """
        self._min_saved_ratio = min_saved_ratio
        self._sink_tokens = sink_tokens
        self._window_tokens = window_tokens
        self._most_recent = window_tokens + window_tokens // 4
        self._growth = ChainGrowth()
        self._copied: dict[int, _Copied] = {}
        self._view: TargetView | None = None
        self._slots: KvSlots | None = None

    @property
    def min_context_tokens(self) -> int:
        """Committed tokens from which on drafts are made."""
        return 2 * (self._sink_tokens + self._window_tokens) + 1

    def attach(self, view: TargetView) -> None:
        """Read the target's KV, and make room for the views where a context can be long enough."""
        self._view = view
        entries = self.view_entries(view.slots.max_context_tokens)
        if entries:
            self._slots = view.decoder.new_slots(view.slots.num_slots, entries)

    def view_entries(self, max_context_tokens: int) -> int:
        """Return the KV entries of a view; 0 where no context can be long enough for one."""
        if max_context_tokens <= self.min_context_tokens:
            return 0
        return self._sink_tokens + self._most_recent + 1 + MAX_DRAFT_LENGTH

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Guess for all rows, one pass per draft position; empty where that cannot pay."""
        long = [ask for ask in asks if len(ask.token_ids) >= self.min_context_tokens]
        paying = self._paying(long) if long else []
        chains = {ask.slot: Chain(ask=ask, length=ask.k) for ask in paying}
        if chains:
            self._follow(paying)
            growing = list(chains.values())
            self._growth.grow(growing, self._read_newest(growing), self._read_newest)
        return [chains[ask.slot].draft() if ask.slot in chains else NO_DRAFT for ask in asks]

    def _paying(self, asks: Sequence[DraftAsk]) -> list[DraftAsk]:
        """Return the rows for which drafts can pay.

        A seeded row is judged alone: a draft takes random numbers from it, so that its answer would
        otherwise depend on its batch mates.
        """
        alone = [ask for ask in asks if ask.is_seeded and self._saves_enough([ask])]
        together = [*alone, *(ask for ask in asks if not ask.is_seeded)]
        return together if self._saves_enough(together) else alone

    def _saves_enough(self, asks: Sequence[DraftAsk]) -> bool:
        return self.saved_ratio([len(ask.token_ids) for ask in asks]) >= self._min_saved_ratio

    def saved_ratio(self, context_tokens: Sequence[int]) -> float:
        """Return the share of a target pass's bytes that a draft pass over the same rows saves.

        Args:
            context_tokens: committed tokens of each row, none shorter than its view.
        """
        view, _ = self._attached()
        token_bytes = sum(
            layer.shape[1] * layer.shape[3] * layer.element_size()
            for layer in (*view.slots.keys, *view.slots.values)
        )
        weight_bytes = view.decoder.num_weights * view.decoder.mask_kind.dtype.itemsize
        held = len(context_tokens) * (self._sink_tokens + self._window_tokens)
        unread = (sum(context_tokens) - held) * token_bytes
        return unread / (weight_bytes + sum(context_tokens) * token_bytes)

    def move(self, source: int, target: int) -> None:
        """Forget both slots: the view is copied anew from the target's KV."""
        self.release(source)
        self.release(target)

    def release(self, slot: int) -> None:
        """Forget the view of a slot."""
        self._copied.pop(slot, None)

    def _attached(self) -> tuple[TargetView, KvSlots]:
        if self._view is None or self._slots is None:
            raise EngineError("the self_sparse drafter was asked before it saw the target")
        return self._view, self._slots

    def _entry(self, slot: int, position: int) -> int:
        """Return where a view keeps what lies at a position of the recent part."""
        return self._sink_tokens + position - self._copied[slot].first

    def _follow(self, asks: Sequence[DraftAsk]) -> None:
        """Copy the target's entries that the views do not hold yet, of all rows at once."""
        rows: list[int] = []
        sources: list[int] = []
        places: list[int] = []
        for ask in asks:
            missing = self._missing(ask)
            rows.extend([ask.slot] * len(missing))
            sources.extend(missing)
            places.extend(
                entry if entry < self._sink_tokens else self._entry(ask.slot, entry)
                for entry in missing
            )
        if rows:
            self._copy(*(torch.tensor(column) for column in (rows, sources, places)))

    def _missing(self, ask: DraftAsk) -> Sequence[int]:
        """Return the target's entries to copy for a row, and note that the view will hold them."""
        end = len(ask.token_ids) - 1
        copied = self._copied.get(ask.slot)
        if copied is not None and end - copied.first <= self._most_recent:
            self._copied[ask.slot] = replace(copied, end=end)
            return range(copied.end, end)
        first = end - self._window_tokens
        self._copied[ask.slot] = _Copied(first, end)
        return [*range(self._sink_tokens), *range(first, end)]

    def _copy(self, rows: Tensor, sources: Tensor, places: Tensor) -> None:
        view, slots = self._attached()
        device = view.decoder.mask_kind.device
        taken = view.slots.flat_index(rows.to(device), sources.to(device))
        given = slots.flat_index(rows.to(device), places.to(device))
        for kept, held in zip(
            (*view.slots.keys, *view.slots.values), (*slots.keys, *slots.values), strict=True
        ):
            head_dim = kept.shape[-1]
            entries = kept.view(-1, head_dim).index_select(0, taken)
            held.view(-1, head_dim).index_copy_(0, given, entries)

    def _read_newest(self, chains: Sequence[Chain]) -> Tensor:
        """Read the newest token of each chain over its view; return logits [B, V]."""
        view, slots = self._attached()
        spans: list[Span] = []
        positions: list[int] = []
        for chain in chains:
            committed = chain.ask.token_ids
            position = len(committed) - 1 + len(chain.token_ids)
            newest = chain.token_ids[-1] if chain.token_ids else committed[-1]
            start = self._entry(chain.ask.slot, position)
            spans.append(Span(slot=chain.ask.slot, start=start, token_ids=[newest]))
            positions.append(position)
        batch = lay_out(spans, view.decoder.mask_kind)
        batch = replace(batch, positions=torch.tensor(positions, device=batch.positions.device))
        return view.decoder.logits(view.decoder.forward(batch, slots))
